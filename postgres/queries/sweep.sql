-- One batch: results become tombstones, what is over is removed, started records of vanished owners go in doubt. The
-- watched come from their index, the oldest end first; the plain ones from a stretch of the table, so that the table
-- is never read as a whole. A row of a newer format is another release's. Rows that somebody has locked wait for the next batch.
with t as materialized (select clock_timestamp() as now),
watched as (
    select r.tenant_id, r.operation, r.idempotency_key, r.watch_at as due
    from {table records} r, t
    where r.watch_at <= (select now from t) and r.format = 1 and (
        r.state in ('issued', 'failed') and r.expires_at <= t.now
        or r.state in ('completed', 'expired') and r.gone_at <= t.now
        or r.state = 'completed' and r.expires_at <= t.now
        or r.state = 'pending' and r.lease_until <= t.now and r.started_at is not null and r.on_crash = 'hold')
    order by r.watch_at limit $batch
),
plain as (
    select r.tenant_id, r.operation, r.idempotency_key, coalesce(r.expires_at, r.lease_until) as due
    from {table records} r, t
    where r.ctid >= $from::tid and r.ctid < $to::tid and r.watch_at is null and r.format = 1 and (
        r.state in ('completed', 'expired') and r.gone_at <= t.now
        or r.state = 'completed' and r.expires_at <= t.now
        or r.state in ('issued', 'failed') and r.expires_at <= t.now
        or r.state = 'pending' and r.lease_until <= t.now and r.started_at is not null and r.on_crash = 'hold')
    limit 8 * $batch
),
due as (select * from watched union all select * from plain order by due limit $batch),
locked as materialized (
    select r.tenant_id, r.operation, r.idempotency_key, r.ctid as place,
        case when r.state = 'pending' then 'doubt'
            when r.state in ('issued', 'failed') or r.gone_at <= t.now then 'gone' else 'tombstone' end as what
    from due join {table records} r using (tenant_id, operation, idempotency_key), t
    where r.state in ('issued', 'failed') and r.expires_at <= t.now
        or r.state in ('completed', 'expired') and r.gone_at <= t.now
        or r.state = 'completed' and r.expires_at <= t.now
        or r.state = 'pending' and r.lease_until <= t.now and r.started_at is not null and r.on_crash = 'hold'
    for update of r skip locked
),
gone as (
    delete from {table records} r using locked l where l.what = 'gone' and r.ctid = l.place
    returning r.tenant_id, r.operation, r.idempotency_key
),
names as (
    delete from {table records} a using gone g
    where a.tenant_id = g.tenant_id and a.operation = g.operation and a.alias_of = g.idempotency_key
),
history as (
    delete from {table attempts} a using gone g
    where a.tenant_id = g.tenant_id and a.operation = g.operation and a.idempotency_key = g.idempotency_key
),
tombstones as (
    update {table records} r set state = 'expired', changed_at = t.now, request_detail = null, snapshot = null, note = null,
        trace = null, response_headers = null, response_body = null, body_kept = false, watch_at = r.gone_at
    from locked l, t where l.what = 'tombstone' and r.ctid = l.place
    returning 1
),
doubts as (
    update {table records} r set state = 'in_doubt', changed_at = t.now, watch_at = timestamptz '9999-01-01 00:00:00+00'
    from locked l, t where l.what = 'doubt' and r.ctid = l.place
    returning 1
)
select ((select count(*) from gone) + (select count(*) from tombstones) + (select count(*) from doubts))::int,
    (select count(*) from locked)::int, (select count(*) from due)::int
