-- The same records for any language: claim, renew, complete, release, issue, lookup. A released function's arguments and
-- columns never change; what is needed beyond them becomes another function.
--
-- Errors: IP001 lease lost, IP002 wrong state, IP003 invalid argument, IP004 unreadable, IP005 not issued, IP006 old epoch.
-- The rules are those of the Go package, which uses plain statements; the store kit holds both equal.

create type {table claimed} as (verdict text, token bytea, attempt bigint, lapsed boolean, state text, status_code int,
    response_headers jsonb, response_body bytea, body_kept boolean, resource_type text, resource_id text,
    expires_at timestamptz, retry_after interval, sealed text);

create type {table recorded} as (state text, attempt bigint, created_at timestamptz, changed_at timestamptz,
    claimed_at timestamptz, started_at timestamptz, lease_until timestamptz, completed_at timestamptz,
    expires_at timestamptz, gone_at timestamptz);

-- Refuses an argument: what names the argument and its rule, never its value.
create function {table refuse_argument}(what text) returns void language plpgsql set search_path = pg_catalog, pg_temp as $body$
begin
    raise exception 'idempo: %', what using errcode = 'IP003';
end $body$;

-- The stored key of a plain one, after checking it: SHA-256 over fields, each led by its length as four bytes big-endian.
-- Operations that Go and SQL share are declared with Operation.SQL.
create function {table key_digest}(tenant_id text, operation text, idempotency_key text) returns bytea
language plpgsql immutable set search_path = pg_catalog, pg_temp as $body$
declare
    t bytea := convert_to(tenant_id, 'UTF8');
    o bytea := convert_to(operation, 'UTF8');
    k bytea := convert_to(idempotency_key, 'UTF8');
begin
    if tenant_id is null or octet_length(tenant_id) not between 1 and 255
        or tenant_id ~ ('[' || chr(1) || '-' || chr(31) || chr(127) || '-' || chr(159) || ']') then
        perform {table refuse_argument}('tenant_id: 1 to 255 bytes without control characters');
    end if;
    if operation is null or octet_length(operation) > 200 or operation collate "C" !~ '^[A-Za-z0-9][A-Za-z0-9._:-]*$' then
        perform {table refuse_argument}('operation: [A-Za-z0-9][A-Za-z0-9._:-]{0,199}');
    end if;
    if idempotency_key is null or octet_length(idempotency_key) not between 1 and 2064 then
        perform {table refuse_argument}('idempotency_key: 1 to 2064 bytes');
    end if;
    return sha256('\x0000000c'::bytea || 'idempo-sql-1' || int4send(length(t)) || t || int4send(length(o)) || o || int4send(length(k)) || k);
end $body$;

-- The key that goes to third parties: equal on every attempt.
create function {table derive_key}(tenant_id text, operation text, idempotency_key text, generation int) returns text
language plpgsql immutable set search_path = pg_catalog, pg_temp as $body$
declare
    t bytea := convert_to(tenant_id, 'UTF8');
    o bytea := convert_to(operation, 'UTF8');
    k bytea := convert_to(idempotency_key, 'UTF8');
    g bytea := convert_to(generation::text, 'UTF8');
    b bytea := substr(sha256('\x0000000f'::bytea || 'idempo-derive-1' || int4send(length(t)) || t || int4send(length(o)) || o
        || int4send(length(k)) || k || '\x0000000000000007' || 'forward' || int4send(length(g)) || g || '\x00000000'), 1, 16);
begin
    b := set_byte(b, 6, (get_byte(b, 6) & 15) | 64);
    b := set_byte(b, 8, (get_byte(b, 8) & 63) | 128);
    return encode(b, 'hex')::uuid::text;
end $body$;

-- Tries the advisory lock of a key: the one that every other claim of this store asks for.
create function {table try_lock}(tenant_id text, operation text, digest bytea) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $body$
declare
    id text := (select m.store_id from {table meta} m);
    sum bytea := sha256(convert_to(id, 'UTF8') || '\x00' || convert_to(tenant_id, 'UTF8') || '\x00' || convert_to(operation, 'UTF8') || '\x00' || digest);
begin
    return pg_try_advisory_xact_lock(('x' || encode(substr(sum, 1, 8), 'hex'))::bit(64)::bigint);
end $body$;

-- What a row counts as at a moment: null where there is nothing.
create function {table effective_state}(r {table records}, at timestamptz) returns text
language plpgsql immutable set search_path = pg_catalog, pg_temp as $body$
begin
    return case
        when r.state in ('issued', 'failed') and r.expires_at <= at or r.state in ('completed', 'expired') and r.gone_at <= at then null
        when r.state = 'completed' and r.expires_at <= at then 'expired'
        when r.state = 'pending' and r.lease_until <= at and r.started_at is not null and r.on_crash = 'hold' then 'in_doubt'
        else r.state::text end;
end $body$;

-- Refuses a row (not: none) that this release cannot read: one of a newer format, or with a word that is none.
create function {table check_readable}(r {table records}) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $body$
begin
    if r.idempotency_key is not null and (r.alias_of is not null or r.format > 1 or r.guard is null or r.on_crash is null or r.state is null
        or r.state not in ('issued', 'pending', 'completed', 'failed', 'in_doubt', 'expired')
        or r.guard not in ('atomic', 'leased') or r.on_crash not in ('hold', 'probe', 'rerun')) then
        raise exception 'idempo: the record was written by a newer release, or is damaged' using errcode = 'IP004';
    end if;
end $body$;

-- A row as renew, complete, release, issue and lookup answer it.
create function {table row_answer}(r {table records}, at timestamptz) returns {table recorded}
language plpgsql immutable set search_path = pg_catalog, pg_temp as $body$
declare
    a {table recorded};
begin
    a.state := {table effective_state}(r, at);
    if a.state is not null then
        a := (a.state, r.attempt, r.created_at, r.changed_at, r.claimed_at, r.started_at, r.lease_until, r.completed_at, r.expires_at, r.gone_at);
    end if;
    return a;
end $body$;

-- The rule of a claim: what a caller gets from a row (or none) at a moment. A verdict run whose attempt is the row's own
-- says that the claim is the caller's already.
create function {table judge_claim}(r {table records}, at timestamptz, hash bytea, policy text, mine bytea, demand boolean)
returns {table claimed} language plpgsql set search_path = pg_catalog, pg_temp as $body$
declare
    a {table claimed};
    policy_of_both text := case when 'hold' in (r.on_crash, policy) then 'hold' when 'probe' in (r.on_crash, policy) then 'probe' else 'rerun' end;
begin
    perform {table check_readable}(r);
    a.state := {table effective_state}(r, at);
    a.lapsed := false;
    a.body_kept := false;
    if a.state is null and demand then
        raise exception 'idempo: the key was not issued, or is used or over' using errcode = 'IP005';
    end if;
    if a.state is null or a.state = 'issued' then
        a.verdict := 'run';
        a.attempt := coalesce(r.attempt, 0) + 1;
        return a;
    end if;
    if r.request_recipe is distinct from 'sql1' then
        raise exception 'idempo: the record''s fingerprint was not made for SQL; declare the operation with SQL: true' using errcode = 'IP004';
    end if;
    a.attempt := r.attempt;
    a.expires_at := r.expires_at;
    a.verdict := case a.state when 'expired' then 'expired' when 'completed' then 'replay' when 'in_doubt' then 'in_doubt' else 'in_progress' end;
    if a.state = 'expired' then
        a.status_code := r.status_code;
        if r.request_hash = hash then
            a.resource_type := r.resource_type;
            a.resource_id := r.resource_id;
        end if;
    elsif r.request_hash is distinct from hash then
        a.verdict := 'mismatch';
    elsif a.state = 'completed' then
        a.token := case when r.token = mine then mine end;
        a.status_code := r.status_code;
        a.response_headers := convert_from(r.response_headers, 'UTF8')::jsonb;
        a.response_body := r.response_body;
        a.body_kept := r.body_kept;
        a.resource_type := r.resource_type;
        a.resource_id := r.resource_id;
        a.sealed := r.sealed;
    elsif r.state = 'pending' and r.lease_until > at then
        if r.token = mine then
            a.verdict := 'run';
            a.token := mine;
            a.lapsed := r.attempt > 1;
        else
            a.retry_after := greatest(interval '1 s', least(floor(round(extract(epoch from at - r.claimed_at) * 1000000) / 2) * interval '1 microsecond', interval '30 s', r.lease_until - at));
        end if;
    elsif r.state = 'in_doubt' and policy_of_both = 'probe' and r.due_at > at then
        a.retry_after := r.due_at - at;
    elsif r.state = 'failed' or r.state = 'pending' and r.started_at is null then
        a.verdict := 'run';
        a.attempt := r.attempt + 1;
    elsif policy_of_both = 'hold' then
        a.verdict := 'in_doubt';
        a.state := 'in_doubt';
    else
        a.verdict := 'run';
        a.attempt := r.attempt + 1;
        a.lapsed := true;
    end if;
    return a;
end $body$;

-- Writes the attempt that a caller won in the place of a row that it has locked, which leaves its own attempt behind.
create function {table take_row}(old {table records}, new {table records}) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $body$
begin
    if old.attempt > 0 then
        insert into {table attempts} (tenant_id, operation, idempotency_key, generation, attempt, state, surface, owner,
            status_code, failing, note, trace, claimed_at, started_at, lease_until, completed_at, ended_at)
        values (old.tenant_id, old.operation, old.idempotency_key, old.generation, old.attempt, old.state, old.surface, old.owner,
            old.status_code, old.failing, old.note, old.trace, old.claimed_at, old.started_at, old.lease_until, old.completed_at, new.changed_at)
        on conflict do nothing;
    end if;
    update {table records} r set request_hash = new.request_hash, request_recipe = new.request_recipe, request_detail = new.request_detail,
        state = new.state, guard = new.guard, on_crash = new.on_crash, surface = new.surface, failing = false,
        attempt = new.attempt, generation = new.generation, token = new.token, owner = new.owner,
        claimed_at = new.claimed_at, started_at = new.started_at, lease_until = new.lease_until,
        status_code = 0, response_headers = null, response_body = null, body_size = 0, body_sha256 = null, body_kept = false,
        resource_type = null, resource_id = null, refs = new.refs, derived_key = new.derived_key, snapshot = new.snapshot,
        due_at = null, note = new.note, trace = new.trace, sealed = new.sealed, format = 1, created_at = new.created_at,
        changed_at = new.changed_at, completed_at = null, issued_until = new.issued_until, expires_at = new.expires_at,
        gone_at = null, watch_at = new.watch_at
    where r.tenant_id = old.tenant_id and r.operation = old.operation and r.idempotency_key = old.idempotency_key;
    if {table effective_state}(old, new.changed_at) is null then -- what is gone leaves with all its digests
        delete from {table records} r where r.tenant_id = old.tenant_id and r.operation = old.operation and r.alias_of = old.idempotency_key;
    end if;
end $body$;

-- Wins a key, or says what stands in the way. With guard atomic it is a part of the caller's transaction: effect, complete
-- and COMMIT follow in it. With guard leased it is a transaction of its own, and the effect runs under the lease.
create function {table claim}(tenant_id text, operation text, idempotency_key text, request_hash bytea, guard text default 'atomic',
    lease interval default '30 s', wait interval default '0', token bytea default null, on_crash text default 'hold',
    start_mark boolean default false, require_issued boolean default false)
returns {table claimed} language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '1s' as $body$
#variable_conflict use_column
declare
    p_tenant text := tenant_id;
    p_operation text := operation;
    p_id text := idempotency_key;
    hash bytea := request_hash;
    p_guard text := guard;
    policy text := on_crash;
    marked boolean := start_mark;
    demand boolean := require_issued;
    patience interval := wait;
    leased interval := lease;
    mine bytea := coalesce(token, substr(sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())), 1, 16));
    digest bytea := {table key_digest}(tenant_id, operation, idempotency_key);
    until timestamptz;
    tries int := 0;
    at timestamptz;
    old {table records};
    new {table records};
    a {table claimed};
begin
    if hash is null or octet_length(hash) not between 16 and 64 then
        perform {table refuse_argument}('request_hash: 16 to 64 bytes');
    elsif p_guard is null or p_guard not in ('atomic', 'leased') then
        perform {table refuse_argument}('guard: atomic or leased');
    elsif policy is null or policy not in ('hold', 'probe', 'rerun') then
        perform {table refuse_argument}('on_crash: hold, probe or rerun');
    elsif leased is null or leased <= '0' or leased > '290 years' then
        perform {table refuse_argument}('lease: longer than 0; 1 s to 1 h is usual');
    elsif patience is null or patience not between '0' and '1 min' then
        perform {table refuse_argument}('wait: 0 to 1 min');
    elsif octet_length(mine) <> 16 then
        perform {table refuse_argument}('token: 16 random bytes');
    elsif marked is null or demand is null then
        perform {table refuse_argument}('start_mark, require_issued: true or false');
    elsif marked and p_guard = 'atomic' then
        perform {table refuse_argument}('start_mark: with guard leased; an atomic effect rolls back by itself');
    end if;
    until := pg_catalog.clock_timestamp() + patience;
    loop
        select r.* into old from {table records} r where r.tenant_id = p_tenant and r.operation = p_operation and r.idempotency_key = digest;
        if found or demand then
            at := clock_timestamp();
            a := {table judge_claim}(old, at, hash, policy, mine, demand);
        else
            a.verdict := 'run';
        end if;
        if a.verdict = 'run' and a.attempt is distinct from old.attempt or old.idempotency_key is null then
            if not {table try_lock}(p_tenant, p_operation, digest) then
                a := null; -- an open transaction has the key, and nothing of it can be seen
            elsif old.idempotency_key is null then
                at := clock_timestamp();
                insert into {table records} (tenant_id, operation, idempotency_key, request_hash, request_recipe, state, guard, on_crash,
                    surface, attempt, token, owner, claimed_at, started_at, lease_until, derived_key, created_at, changed_at)
                values (p_tenant, p_operation, digest, hash, 'sql1', 'pending', p_guard, policy, '', 1, mine,
                    concat_ws(' ', 'sql', session_user, host(inet_client_addr()), pg_backend_pid()), at,
                    case when not marked then at end, at + leased, {table derive_key}(p_tenant, p_operation, p_id, 1), at, at)
                on conflict (tenant_id, operation, idempotency_key) do nothing;
                if found then
                    a := ('run', mine, 1, false, 'pending', null, null, null, false, null, null, null, null, null);
                    return a;
                end if;
                tries := tries + 1;
                continue when tries < 5; -- a further statement sees the winner
                a := null;
            else
                begin -- who writes to a row without the key's lock is done in a moment
                    select r.* into old from {table records} r
                    where r.tenant_id = p_tenant and r.operation = p_operation and r.idempotency_key = digest for update;
                    tries := tries + 1;
                    continue when not found and tries < 5;
                    at := clock_timestamp();
                    a := {table judge_claim}(old, at, hash, policy, mine, demand);
                exception when lock_not_available then
                    a := null;
                end;
            end if;
        end if;
        if a.verdict = 'run' and a.attempt = old.attempt then
            return a;
        elsif a.verdict = 'run' then
            new := old;
            if a.state is null then -- gone: nothing of it stays but the number of its attempts
                new.generation := 1;
                new.created_at := at;
                new.issued_until := null;
                new.derived_key := null;
                new.refs := null;
                new.note := null;
                new.sealed := null;
            end if;
            if a.state is null or a.state = 'issued' then
                new.request_hash := hash;
                new.request_recipe := 'sql1';
                new.request_detail := null;
            end if;
            if a.state is null then
                new.snapshot := null;
            end if;
            new.derived_key := coalesce(new.derived_key, {table derive_key}(p_tenant, p_operation, p_id, new.generation));
            new.on_crash := case when a.lapsed and 'hold' in (old.on_crash, policy) then 'hold'
                when a.lapsed and 'probe' in (old.on_crash, policy) then 'probe' else policy end;
            new.state := 'pending';
            new.guard := p_guard;
            new.surface := '';
            new.attempt := a.attempt;
            new.token := mine;
            new.owner := concat_ws(' ', 'sql', session_user, host(inet_client_addr()), pg_backend_pid());
            new.trace := null;
            new.claimed_at := at;
            new.started_at := case when not marked then at end;
            new.lease_until := at + leased;
            new.changed_at := at;
            new.expires_at := null;
            new.watch_at := case when a.attempt > 1 then new.lease_until end;
            perform {table take_row}(old, new);
            a.token := mine;
            a.state := 'pending';
            a.expires_at := null;
            return a;
        elsif a.verdict is null then
            a.verdict := 'in_progress';
            a.state := 'pending';
            a.lapsed := false;
            a.body_kept := false;
            a.retry_after := interval '1 s';
        end if;
        exit when a.verdict <> 'in_progress' or pg_catalog.clock_timestamp() >= until;
        tries := tries + 1;
        perform pg_sleep(least(0.01 * least(tries, 10), extract(epoch from until - pg_catalog.clock_timestamp())));
    end loop;
    return a;
end $body$;

-- The row of a claim, locked, or the reason why a caller with that token may not write to it.
create function {table own_row}(p_tenant text, p_operation text, digest bytea, mine bytea) returns {table records}
language plpgsql set search_path = pg_catalog, pg_temp as $body$
declare
    r {table records};
begin
    if mine is null or octet_length(mine) <> 16 then
        perform {table refuse_argument}('token: 16 bytes, as claim returned it');
    end if;
    select x.* into r from {table records} x where x.tenant_id = p_tenant and x.operation = p_operation and x.idempotency_key = digest for update;
    perform {table check_readable}(r);
    if r.token is distinct from mine or {table effective_state}(r, clock_timestamp()) is null then
        perform {table lose_claim}(r);
    end if;
    return r;
end $body$;

create function {table lose_claim}(r {table records}) returns void language plpgsql set search_path = pg_catalog, pg_temp as $body$
declare
    m {table meta};
begin
    select x.* into m from {table meta} x;
    if r.idempotency_key is null and m.epoch_until > clock_timestamp()
        or r.state in ('pending', 'in_doubt') and r.token is null and m.epoch > 1 and r.claimed_at <= to_timestamp(m.epoch) then
        raise exception 'idempo: the claim is of an old epoch: commits of the database were lost' using errcode = 'IP006';
    end if;
    raise exception 'idempo: the claim is lost: another attempt, an operator or the clock has settled the key'
        using errcode = 'IP001', hint = 'present attempt: ' || coalesce(r.attempt::text, 'none');
end $body$;

-- Extends a live lease to now + lease, never shortens it; start sets the start mark.
create function {table renew}(tenant_id text, operation text, idempotency_key text, token bytea, lease interval default '30 s',
    start boolean default false)
returns {table recorded} language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '1s' as $body$
#variable_conflict use_column
declare
    leased interval := lease;
    mine bytea := token;
    begins boolean := start;
    r {table records};
    at timestamptz;
begin
    if leased is null or leased <= '0' or leased > '290 years' then
        perform {table refuse_argument}('lease: longer than 0; 1 s to 1 h is usual');
    elsif begins is null then
        perform {table refuse_argument}('start: true or false');
    end if;
    r := {table own_row}(tenant_id, operation, {table key_digest}(tenant_id, operation, idempotency_key), mine);
    at := clock_timestamp();
    if r.state <> 'pending' or r.lease_until <= at then
        perform {table lose_claim}(r);
    end if;
    update {table records} x set lease_until = greatest(x.lease_until, at + leased), changed_at = at,
        started_at = case when begins then coalesce(x.started_at, at) else x.started_at end
    where x.tenant_id = r.tenant_id and x.operation = r.operation and x.idempotency_key = r.idempotency_key
    returning x.* into r;
    return {table row_answer}(r, at);
end $body$;

-- Stores the result: after an atomic claim in its transaction, else fenced by the token. The same result again changes
-- nothing; response_headers is an array of pairs [["Content-Type", "text/plain"]], a value that is not UTF-8 as
-- {"b64": "…"}.
create function {table complete}(tenant_id text, operation text, idempotency_key text, token bytea, status_code int default 0,
    response_body bytea default null, response_headers jsonb default null, resource_type text default null,
    resource_id text default null, failing boolean default false, retention interval default '24 h',
    tombstone interval default null, tombstone_forever boolean default false)
returns {table recorded} language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '1s' as $body$
#variable_conflict use_column
declare
    mine bytea := token;
    status int := coalesce(status_code, 0);
    body bytea := response_body;
    heads jsonb := nullif(response_headers, '[]');
    kind text := nullif(resource_type, '');
    name text := nullif(resource_id, '');
    fails boolean := failing;
    kept_for interval := retention;
    known_for interval := coalesce(tombstone, 10 * retention);
    forever boolean := tombstone_forever;
    keep boolean := coalesce(octet_length(response_body), 0) <= 64 * 1024 * 1024;
    size bigint := coalesce(octet_length(response_body), 0);
    sum bytea;
    p_tenant text := tenant_id;
    p_operation text := operation;
    digest bytea := {table key_digest}(tenant_id, operation, idempotency_key);
    r {table records};
    a {table recorded};
    at timestamptz;
begin
    if kept_for is null or kept_for <= '0' or kept_for > '290 years' then
        perform {table refuse_argument}('retention: longer than 0, at most 290 years');
    elsif not forever and (known_for <= '0' or known_for > '2900 years') then
        perform {table refuse_argument}('tombstone: longer than 0, at most 290 years; tombstone_forever keeps it without end');
    elsif forever is null or fails is null then
        perform {table refuse_argument}('failing, tombstone_forever: true or false');
    elsif octet_length(kind) > 255 or octet_length(name) > 255 then
        perform {table refuse_argument}('resource_type, resource_id: at most 255 bytes each');
    elsif not {table headers_valid}(heads) then
        perform {table refuse_argument}('response_headers: an array of pairs of strings');
    end if;
    if not keep then
        sum := sha256(body);
        body := null;
    end if;
    at := clock_timestamp();
    -- Nearly always the row is as its claim left it. Where this meets no such row, it is read and judged.
    update {table records} x set state = 'completed', failing = fails, status_code = status,
        response_headers = convert_to(heads::text, 'UTF8'), response_body = body,
        body_size = size, body_sha256 = sum, body_kept = keep,
        resource_type = kind, resource_id = name, sealed = null, due_at = null, note = null, changed_at = at, completed_at = at,
        expires_at = at + kept_for, gone_at = case when not forever then at + kept_for + known_for end, watch_at = null
    where x.tenant_id = p_tenant and x.operation = p_operation and x.idempotency_key = digest
        and x.token = mine and x.state = 'pending' and x.format = 1 and x.guard in ('atomic', 'leased')
        and x.on_crash in ('hold', 'probe', 'rerun')
    returning x.state, x.attempt, x.created_at, x.changed_at, x.claimed_at, x.started_at, x.lease_until, x.completed_at, x.expires_at, x.gone_at into a;
    if found then
        return a;
    end if;
    r := {table own_row}(p_tenant, p_operation, digest, mine);
    at := clock_timestamp();
    case {table effective_state}(r, at)
    when 'completed' then
        if r.status_code = status and r.failing = fails and r.resource_type is not distinct from kind and r.resource_id is not distinct from name
            and r.response_body is not distinct from body and convert_from(r.response_headers, 'UTF8')::jsonb is not distinct from heads then
            return {table row_answer}(r, at);
        end if;
        perform {table refuse_state}(r);
    when 'failed' then
        perform {table refuse_state}(r);
    when 'pending', 'in_doubt' then
    else
        perform {table lose_claim}(r);
    end case;
    update {table records} x set state = 'completed', failing = fails, status_code = status,
        response_headers = convert_to(heads::text, 'UTF8'), response_body = body,
        body_size = size, body_sha256 = sum, body_kept = keep,
        resource_type = kind, resource_id = name, sealed = null, due_at = null, note = null, changed_at = at, completed_at = at,
        expires_at = at + kept_for, gone_at = case when not forever then at + kept_for + known_for end, watch_at = null
    where x.tenant_id = r.tenant_id and x.operation = r.operation and x.idempotency_key = r.idempotency_key
    returning x.* into r;
    return {table row_answer}(r, at);
end $body$;

create function {table refuse_state}(r {table records}) returns void language plpgsql set search_path = pg_catalog, pg_temp as $body$
begin
    raise exception 'idempo: the record is %', r.state using errcode = 'IP002', hint = 'attempt ' || r.attempt;
end $body$;

create function {table headers_valid}(h jsonb) returns boolean language plpgsql immutable set search_path = pg_catalog, pg_temp as $body$
declare
    pair jsonb;
    v jsonb;
begin
    if h is null then
        return true;
    elsif jsonb_typeof(h) <> 'array' then
        return false;
    end if;
    for pair in select * from jsonb_array_elements(h) loop
        if jsonb_typeof(pair) <> 'array' or jsonb_array_length(pair) <> 2 then
            return false;
        end if;
        for v in select * from jsonb_array_elements(pair) loop
            if jsonb_typeof(v) <> 'string' and coalesce(jsonb_typeof(v -> 'b64') <> 'string' or length(v ->> 'b64') % 4 <> 0
                or v ->> 'b64' !~ '^[A-Za-z0-9+/]*={0,2}$', true) then
                return false;
            end if;
        end loop;
    end loop;
    return true;
end $body$;

-- Gives the key back: happened 'no', it is known that nothing was done, and the key may run again with the same request ·
-- 'maybe', in doubt until somebody proves it · 'forget', nothing was done and the key is as new, or issued again.
create function {table release}(tenant_id text, operation text, idempotency_key text, token bytea, happened text,
    note text default null)
returns {table recorded} language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '1s' as $body$
#variable_conflict use_column
declare
    mine bytea := token;
    what text := happened;
    remark text := nullif(case when octet_length(note) > 4096 then left(note, 1024) else note end, '');
    r {table records};
    at timestamptz;
    a {table recorded};
begin
    if what is null or what not in ('no', 'maybe', 'forget') then
        perform {table refuse_argument}('happened: no, maybe or forget');
    end if;
    r := {table own_row}(tenant_id, operation, {table key_digest}(tenant_id, operation, idempotency_key), mine);
    at := clock_timestamp();
    if {table effective_state}(r, at) = 'completed' then
        perform {table refuse_state}(r);
    elsif r.state = 'failed' or r.state = 'in_doubt' and what = 'maybe' then
        return {table row_answer}(r, at);
    elsif r.state not in ('pending', 'in_doubt') or r.state = 'in_doubt' and what <> 'no' then
        perform {table lose_claim}(r);
    end if;
    if what = 'forget' and r.issued_until is null then
        delete from {table records} x where x.tenant_id = r.tenant_id and x.operation = r.operation
            and (x.idempotency_key = r.idempotency_key or x.alias_of = r.idempotency_key);
        delete from {table attempts} x where x.tenant_id = r.tenant_id and x.operation = r.operation and x.idempotency_key = r.idempotency_key;
        return a;
    end if;
    r.changed_at := at;
    r.note := remark;
    if what = 'no' then
        r.state := 'failed';
        r.expires_at := at + interval '24 h';
        r.due_at := null;
        r.watch_at := r.expires_at;
    elsif what = 'maybe' then
        r.state := 'in_doubt';
        r.started_at := coalesce(r.started_at, at);
        r.due_at := null;
        r.watch_at := case when r.on_crash = 'hold' then timestamptz '9999-01-01 00:00:00+00' else at end;
    else
        r.state := 'issued';
        r.expires_at := r.issued_until;
        r.token := null;
        r.request_hash := null;
        r.request_recipe := '';
        r.request_detail := null;
        r.snapshot := null;
        r.watch_at := r.expires_at;
    end if;
    update {table records} x set state = r.state, changed_at = r.changed_at, note = r.note, expires_at = r.expires_at, due_at = r.due_at,
        started_at = r.started_at, token = r.token, request_hash = r.request_hash, request_recipe = r.request_recipe,
        request_detail = r.request_detail, snapshot = r.snapshot, watch_at = r.watch_at
    where x.tenant_id = r.tenant_id and x.operation = r.operation and x.idempotency_key = r.idempotency_key;
    return {table row_answer}(r, at);
end $body$;

-- Hands a one-time key out: claim with require_issued consumes it. A key that is there already stays as it is; look at
-- the state of the answer.
create function {table issue}(tenant_id text, operation text, idempotency_key text, "for" interval default '1 h')
returns {table recorded} language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '1s' as $body$
#variable_conflict use_column
declare
    p_tenant text := tenant_id;
    p_operation text := operation;
    digest bytea := {table key_digest}(tenant_id, operation, idempotency_key);
    lives interval := "for";
    old {table records};
    new {table records};
    a {table recorded};
    at timestamptz;
begin
    if lives is null or lives <= '0' or lives > '290 years' then
        perform {table refuse_argument}('for: longer than 0, at most 290 years');
    end if;
    for tries in 1 .. 5 loop
        select r.* into old from {table records} r where r.tenant_id = p_tenant and r.operation = p_operation and r.idempotency_key = digest;
        perform {table check_readable}(old);
        at := clock_timestamp();
        if {table effective_state}(old, at) is not null then
            return {table row_answer}(old, at);
        end if;
        exit when not {table try_lock}(p_tenant, p_operation, digest);
        at := clock_timestamp();
        if old.idempotency_key is null then
            insert into {table records} (tenant_id, operation, idempotency_key, request_recipe, state, guard, on_crash, surface, owner, created_at,
                changed_at, issued_until, expires_at, watch_at)
            values (p_tenant, p_operation, digest, '', 'issued', 'atomic', 'hold', '',
                concat_ws(' ', 'sql', session_user, host(inet_client_addr()), pg_backend_pid()), at, at, at + lives, at + lives, at + lives)
            on conflict (tenant_id, operation, idempotency_key) do nothing returning * into new;
            if found then
                return {table row_answer}(new, at);
            end if;
        else
            select r.* into old from {table records} r
            where r.tenant_id = p_tenant and r.operation = p_operation and r.idempotency_key = digest for update;
            if found and {table effective_state}(old, at) is null then
                new.tenant_id := p_tenant;
                new.operation := p_operation;
                new.idempotency_key := digest;
                new.request_recipe := '';
                new.state := 'issued';
                new.guard := 'atomic';
                new.on_crash := 'hold';
                new.surface := '';
                new.attempt := old.attempt;
                new.generation := 1;
                new.owner := concat_ws(' ', 'sql', session_user, host(inet_client_addr()), pg_backend_pid());
                new.created_at := at;
                new.changed_at := at;
                new.issued_until := at + lives;
                new.expires_at := at + lives;
                new.watch_at := at + lives;
                perform {table take_row}(old, new);
                return {table row_answer}(new, at);
            end if;
        end if;
    end loop;
    a.state := 'pending'; -- somebody is at it
    return a;
end $body$;

-- Reads a key without lock or write; state is null where there is none.
create function {table lookup}(tenant_id text, operation text, idempotency_key text)
returns {table recorded} language plpgsql set search_path = pg_catalog, pg_temp as $body$
#variable_conflict use_column
declare
    p_tenant text := tenant_id;
    p_operation text := operation;
    digest bytea := {table key_digest}(tenant_id, operation, idempotency_key);
    r {table records};
begin
    select x.* into r from {table records} x where x.tenant_id = p_tenant and x.operation = p_operation and x.idempotency_key = digest;
    perform {table check_readable}(r);
    return {table row_answer}(r, clock_timestamp());
end $body$;

-- down
drop function {table claim};
drop function {table renew};
drop function {table complete};
drop function {table release};
drop function {table issue};
drop function {table lookup};
drop function {table own_row};
drop function {table lose_claim};
drop function {table refuse_state};
drop function {table headers_valid};
drop function {table take_row};
drop function {table judge_claim};
drop function {table row_answer};
drop function {table check_readable};
drop function {table effective_state};
drop function {table try_lock};
drop function {table derive_key};
drop function {table key_digest};
drop function {table refuse_argument};
drop type {table claimed};
drop type {table recorded};
