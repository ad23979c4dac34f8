-- Writes a record in the place of one that was read, if it is still the same. Another's write to it is waited for, one
-- that holds its advisory lock is not. The attempt that it replaces moves to table attempts. Digests that are missing are occupied. Returns whether it wrote; where $must is
-- true it fails instead (22P02), also where the work ended the transaction (22012) or a digest was taken by another.
with t as materialized (select coalesce($now, clock_timestamp()) as now,
    $start is null or $start = (date_part('epoch', transaction_timestamp()) * 1000000)::bigint as open,
    set_config('lock_timeout', coalesce($timeout, current_setting('lock_timeout')), true)),
old as materialized (
    select r.ctid as place, r.* from {table records} r, t
    where r.tenant_id = $tenant_id and r.operation = $operation and r.idempotency_key = $idempotency_key
        and r.attempt = $old_attempt and r.state = $old_state and r.token is not distinct from $old_token
        and r.changed_at = $old_changed_at and r.refs is not distinct from $old_refs
        and t.open
        and ($locks is null or (select bool_and(pg_try_advisory_xact_lock(l::bigint)) from unnest(string_to_array($locks, ',')) l))
    for update of r
),
moved as (
    insert into {table attempts} (tenant_id, operation, idempotency_key, generation, attempt, state, surface, owner,
        status_code, failing, note, trace, claimed_at, started_at, lease_until, completed_at, ended_at)
    select old.tenant_id, old.operation, old.idempotency_key, old.generation, old.attempt, old.state, old.surface, old.owner,
        old.status_code, old.failing, old.note, old.trace, old.claimed_at, old.started_at, old.lease_until, old.completed_at, t.now
    from old, t where old.attempt > 0 and (old.attempt <> $attempt or old.generation <> $generation or $archive)
    on conflict do nothing
),
put as (
    update {table records} r set
        request_hash = $request_hash, request_recipe = $request_recipe, request_detail = $request_detail,
        state = $state, guard = $guard, on_crash = $on_crash, surface = $surface, failing = $failing,
        attempt = $attempt, generation = $generation, token = $token, owner = $owner,
        claimed_at = $claimed_at, started_at = $started_at, lease_until = $lease_until,
        status_code = $status_code, response_headers = $response_headers, response_body = $response_body,
        body_size = $body_size, body_sha256 = $body_sha256, body_kept = $body_kept,
        resource_type = $resource_type, resource_id = $resource_id, refs = $refs,
        derived_key = $derived_key, snapshot = $snapshot, due_at = $due_at, note = $note, trace = $trace,
        sealed = $sealed, format = $format, created_at = $created_at, changed_at = $changed_at,
        completed_at = $completed_at, issued_until = $issued_until, expires_at = $expires_at, gone_at = $gone_at,
        watch_at = $watch_at
    from old, t where r.ctid = old.place
    returning 1
),
given as materialized (
    select decode(g.digest, 'hex') as digest from unnest(string_to_array($digests, ',')) g (digest)
),
named as (
    insert into {table records} (tenant_id, operation, idempotency_key, alias_of, created_at, changed_at)
    select $tenant_id, $operation, given.digest, $idempotency_key, t.now, t.now
    from given, t, put
    -- A value, not an exists: that becomes a join, which may read all keys of the operation.
    where (select true from {table records} a
        where a.tenant_id = $tenant_id and a.operation = $operation and a.idempotency_key = given.digest) is null
    on conflict (tenant_id, operation, idempotency_key) do nothing
    returning idempotency_key
),
freed as (
    delete from {table records} a using put, old, t
    where a.tenant_id = $tenant_id and a.operation = $operation and a.alias_of = $idempotency_key
        and (a.idempotency_key in (select decode(f, 'hex') from unnest(string_to_array($free, ',')) f)
            -- what is gone leaves with all its digests
            or case when old.state in ('issued', 'failed') then old.expires_at else old.gone_at end <= $changed_at
                and a.idempotency_key not in (select given.digest from given))
)
select t.now, case
    when not exists (select from put) and not t.open and $must then 1 / t.open::int
    when not exists (select from put) and $must then cast('idempo: another attempt has the key' || t.now::text as int)
    when not exists (select from put) then 0
    when (select count(*) from given g where not exists (select from named n where n.idempotency_key = g.digest)
            and (select true from {table records} a where a.tenant_id = $tenant_id and a.operation = $operation
                and a.idempotency_key = g.digest and coalesce(a.alias_of, a.idempotency_key) = $idempotency_key) is null) > 0
        then cast('idempo: a digest of this key was taken by another' || t.now::text as int)
    else 1 end
from t
