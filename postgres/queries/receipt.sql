-- The receipt of a key, and the clock; of a key that has none, the clock alone.
select r.tenant_id, r.subscriber, r.receipt_key, r.seq, r.rev, r.status, r.reason, r.holds, r.source, r.message_id, r.message_type, r.lane, r.version, r.headers, r.body, r.position, r.message_at, r.attempts, r.failures, r.received_at, r.changed_at, r.next_at, r.sealed, r.seen, r.seen_at, r.body_until, r.gone_at, t.now
from (select coalesce($now, clock_timestamp()) as now) t
left join {table receipts} r on r.tenant_id = $tenant_id and r.subscriber = $subscriber and r.receipt_key = $receipt_key
