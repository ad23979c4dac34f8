DELETE FROM {table records} WHERE tenant_id = ?1 AND operation = ?2 AND alias_of = ?3
