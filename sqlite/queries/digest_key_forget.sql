DELETE FROM {table meta} WHERE name = 'digest_key:' || ?1
