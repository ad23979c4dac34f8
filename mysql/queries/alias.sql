-- Occupies one more digest. LAST_INSERT_ID: 0 is a new row, 2 one of the same record, 1 another's.
insert into {table records} (tenant_id, operation, idempotency_key, alias_of, created_at, changed_at)
values ($tenant_id, $operation, $alias, $idempotency_key, $changed_at, $changed_at)
on duplicate key update rev = rev + 0 * last_insert_id(if(alias_of <=> $idempotency_key, 2, 1))
