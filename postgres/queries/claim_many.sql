-- claim for a key under several digests: it wins all of them or none. Where it won the record's row but not every
-- alias, the statement fails (22P02) and leaves nothing.
with t as materialized (select coalesce($now, clock_timestamp()) as now),
given as materialized (
    select decode(g.digest, 'hex') as digest, g.place
    from unnest(string_to_array($digests, ',')) with ordinality g (digest, place)
),
seen as materialized (
    select g.place, r.* from given g
    cross join lateral (
        select coalesce(alias_of, idempotency_key) as digest from {table records}
        where tenant_id = $tenant_id and operation = $operation and idempotency_key = g.digest limit 1
    ) a
    cross join lateral (
        select * from {table records}
        where tenant_id = $tenant_id and operation = $operation and idempotency_key = a.digest limit 1
    ) r
),
won as (
    insert into {table records} (tenant_id, operation, idempotency_key, request_hash, request_recipe, request_detail,
        state, guard, on_crash, surface, attempt, generation, token, owner, claimed_at, started_at, lease_until,
        derived_key, snapshot, due_at, trace, sealed, format, created_at, changed_at, issued_until, expires_at, watch_at)
    select $tenant_id, $operation, $idempotency_key, $request_hash, $request_recipe, $request_detail,
        $state, $guard, $on_crash, $surface, $attempt, $generation, $token, $owner, $claimed_at, $started_at, $lease_until,
        $derived_key, $snapshot, $due_at, $trace, $sealed, $format, $created_at, $changed_at, $issued_until, $expires_at, $watch_at
    from t
    where case when exists (select from seen) then false
        else (select bool_and(pg_try_advisory_xact_lock(l::bigint)) from unnest(string_to_array($locks, ',')) l)
            and set_config('lock_timeout', coalesce($timeout, current_setting('lock_timeout')), true) is not null end
    on conflict (tenant_id, operation, idempotency_key) do nothing
    returning true as won
),
named as (
    insert into {table records} (tenant_id, operation, idempotency_key, alias_of, created_at, changed_at)
    select $tenant_id, $operation, given.digest, $idempotency_key, t.now, t.now
    from given, t, won where given.place > 1
    on conflict (tenant_id, operation, idempotency_key) do nothing
    returning 1
),
checked as (
    select won.won, cast(case when (select count(*) from named) = (select count(*) - 1 from given) then '1'
        else 'idempo: a digest of this key was taken by another' end as int) as n
    from won
)
select null::boolean as won, {columns seen}, t.now, pg_postmaster_start_time(), seen.place
from t join seen on true
union all
select checked.won, {columns seen}, t.now, pg_postmaster_start_time(), checked.n
from t join checked on true left join seen on false
order by 45
