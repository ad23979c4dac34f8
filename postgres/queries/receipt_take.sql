-- What is due, the oldest first. Nobody waits for another taker.
with t as (select coalesce($now, clock_timestamp()) as now),
d as materialized (
    select r.tenant_id, r.receipt_key, r.next_at from {table receipts} r
    where r.subscriber = $subscriber and r.next_at <= (select now from t)
    order by r.next_at, r.seq limit $limit for update of r skip locked)
update {table receipts} r set rev = r.rev + 1, attempts = r.attempts + 1, changed_at = t.now, next_at = t.now + $delay * interval '1 microsecond'
from d, t
where r.tenant_id = d.tenant_id and r.subscriber = $subscriber and r.receipt_key = d.receipt_key
returning r.tenant_id, r.subscriber, r.receipt_key, r.seq, r.rev, r.status, r.reason, r.holds, r.source, r.message_id, r.message_type, r.lane, r.version, r.headers, r.body, r.position, r.message_at, r.attempts, r.failures, r.received_at, r.changed_at, r.next_at, r.sealed, r.seen, r.seen_at, r.body_until, r.gone_at, t.now, d.next_at
