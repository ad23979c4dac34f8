-- Started owners that vanished, where nobody may run again: in doubt, so that lists and alarms see them.
UPDATE {table records} SET state = 'in_doubt', changed_at = ?1
WHERE rowid IN (
  SELECT rowid FROM {table records} INDEXED BY {name records_lease}
  WHERE state = 'pending' AND lease_until <= ?1 AND started_at IS NOT NULL AND on_crash = 'hold' AND format <= ?2
  ORDER BY lease_until LIMIT ?3)
