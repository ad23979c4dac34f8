-- The successor of a revision; 0 rows: it has another one, or is gone.
update {table receipts} r set rev = r.rev + 1, status = $status, reason = $reason, holds = $holds, attempts = $attempts, failures = $failures,
    changed_at = t.now, next_at = case when $due then t.now + $delay * interval '1 microsecond' end,
    body_until = case when $body_for > 0 then t.now + $body_for * interval '1 microsecond' end,
    gone_at = case when $keep_for > 0 then t.now + $keep_for * interval '1 microsecond' end
from (select coalesce($now, clock_timestamp()) as now) t
where r.tenant_id = $tenant_id and r.subscriber = $subscriber and r.receipt_key = $receipt_key and r.rev = $rev
returning r.tenant_id, r.subscriber, r.receipt_key, r.seq, r.rev, r.status, r.reason, r.holds, r.source, r.message_id, r.message_type, r.lane, r.version, r.headers, r.body, r.position, r.message_at, r.attempts, r.failures, r.received_at, r.changed_at, r.next_at, r.sealed, r.seen, r.seen_at, r.body_until, r.gone_at, r.changed_at
