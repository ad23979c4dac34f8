-- lock for a key under several digests.
select case when $idle is null then '' else set_config('idle_in_transaction_session_timeout', $idle, true) end,
    (date_part('epoch', transaction_timestamp()) * 1000000)::bigint,
    case when exists (
        select from unnest(string_to_array($digests, ',')) g (digest)
        cross join lateral (
            select coalesce(alias_of, idempotency_key) as digest from {table records}
            where tenant_id = $tenant_id and operation = $operation and idempotency_key = decode(g.digest, 'hex') limit 1
        ) a
        cross join lateral (
            select state, gone_at from {table records}
            where tenant_id = $tenant_id and operation = $operation and idempotency_key = a.digest limit 1
        ) r
        where r.state in ('completed', 'expired') and (r.gone_at is null or r.gone_at > coalesce($now, clock_timestamp()))
    ) then null
    else (select bool_and(pg_try_advisory_xact_lock(l::bigint)) from unnest(string_to_array($locks, ',')) l) end,
    coalesce($now, clock_timestamp()), pg_postmaster_start_time()
