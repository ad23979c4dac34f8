-- After a failover or a restore that lost commits: a new epoch. Its number is the time at which it began, so that it is newer
-- than any that the lost commits had.

-- Takes the place of the insert of a leased claim while the window is open: a key that is not found may have run before the
-- commits were lost, so it counts as lapsed and started. What on_crash says follows.
create function {table lost_claim}() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $body$
declare
    m {table meta};
    at timestamptz := clock_timestamp();
begin
    select x.* into m from {table meta} x;
    if m.epoch_until is null or m.epoch_until <= at then
        return new;
    end if;
    insert into {table records} (tenant_id, operation, idempotency_key, request_hash, request_recipe, request_detail, state, guard, on_crash,
        surface, attempt, owner, claimed_at, started_at, lease_until, derived_key, snapshot, sealed, note, created_at, changed_at, watch_at)
    values (new.tenant_id, new.operation, new.idempotency_key, new.request_hash, new.request_recipe, new.request_detail, 'pending', new.guard,
        new.on_crash, new.surface, 1, 'unknown: before epoch ' || m.epoch, at, at, at, new.derived_key, new.snapshot, new.sealed,
        'commits of the database were lost: this key may have run before', at, at, at)
    on conflict (tenant_id, operation, idempotency_key) do nothing;
    return null; -- the claim's next statement finds this row
end $body$;

-- Begins a new epoch and returns its number. Running claims are lost: their owners may be of another time. Until the window ends a
-- leased key that is not found counts as lapsed and started; choose it longer than the longest horizon of your callers. A window of
-- 0 ends one early. It needs the rights of the table's owner, and waits at most 500 ms for its lock: then call it again (55P03).
create function {table advance_epoch}("window" interval) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '500ms' as $body$
declare
    at timestamptz;
    number bigint;
    duration interval := "window";
begin
    if duration is null or duration < '0' or duration > '10 years' then
        perform {table refuse_argument}('window: 0 to 10 years');
    end if;
    -- Excludes every claim, so that each is either seen below or of the new epoch.
    lock table {table records} in share row exclusive mode;
    drop trigger if exists lost_claims on {table records};
    at := clock_timestamp();
    update {table meta} m set epoch = greatest(m.epoch + 1, ceil(extract(epoch from at))::bigint), epoch_until = at + duration
    returning m.epoch into number;
    update {table records} r set token = null, lease_until = least(r.lease_until, at), changed_at = at, watch_at = least(coalesce(r.watch_at, at), at)
    where r.state = 'pending' and r.token is not null;
    update {table records} r set token = null where r.state = 'in_doubt' and r.token is not null;
    if duration > '0' then
        create trigger lost_claims before insert on {table records} for each row
            when (new.state = 'pending' and new.guard = 'leased' and new.token is not null) execute function {table lost_claim}();
    end if;
    return number;
end $body$;

-- down
drop trigger if exists lost_claims on {table records};
drop function {table advance_epoch};
drop function {table lost_claim};
