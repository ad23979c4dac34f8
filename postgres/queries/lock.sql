-- Before the decisive read of an atomic claim: null where the answer is final and no lock is needed, else whether the
-- key's lock was free. It is a courtesy that keeps the work from running twice; the primary key decides.
select case when $idle is null then '' else set_config('idle_in_transaction_session_timeout', $idle, true) end,
    (date_part('epoch', transaction_timestamp()) * 1000000)::bigint,
    case when exists (
        select from {table records}
        where tenant_id = $tenant_id and operation = $operation and idempotency_key = $idempotency_key
            and state in ('completed', 'expired') and (gone_at is null or gone_at > coalesce($now, clock_timestamp()))
    ) then null else pg_try_advisory_xact_lock($lock) end,
    coalesce($now, clock_timestamp()), pg_postmaster_start_time()
