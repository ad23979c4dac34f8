-- The other digests of a key that finish inserts, sent behind it. It fails (22P02) where another has one of them by now.
insert into {table records} as r (tenant_id, operation, idempotency_key, alias_of, created_at, changed_at)
select $tenant_id, $operation, decode(g.digest, 'hex'), $idempotency_key, $created_at!, $changed_at!
from unnest(string_to_array($digests, ',')) g (digest)
on conflict (tenant_id, operation, idempotency_key) do update
    set attempt = cast('idempo: a digest of this key was taken by another' || r.attempt::text as bigint)
