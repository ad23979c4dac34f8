-- A new receipt; 0 rows: there is one.
insert into {table receipts} as r (tenant_id, subscriber, receipt_key, rev, status, reason, holds, source, message_id, message_type, lane, version,
    headers, body, position, message_at, attempts, failures, received_at, changed_at, next_at, sealed, body_until, gone_at)
select $tenant_id, $subscriber, $receipt_key, 1, $status, $reason, $holds, $source, $message_id, $message_type, $lane, $version,
    $headers, $body, $position, $message_at, $attempts, $failures, t.now, t.now,
    case when $due then t.now + $delay * interval '1 microsecond' end, $sealed,
    case when $body_for > 0 then t.now + $body_for * interval '1 microsecond' end,
    case when $keep_for > 0 then t.now + $keep_for * interval '1 microsecond' end
from (select coalesce($now, clock_timestamp()) as now) t
on conflict (tenant_id, subscriber, receipt_key) do nothing
returning r.tenant_id, r.subscriber, r.receipt_key, r.seq, r.rev, r.status, r.reason, r.holds, r.source, r.message_id, r.message_type, r.lane, r.version, r.headers, r.body, r.position, r.message_at, r.attempts, r.failures, r.received_at, r.changed_at, r.next_at, r.sealed, r.seen, r.seen_at, r.body_until, r.gone_at, r.changed_at
