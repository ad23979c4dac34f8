-- What is due, the oldest first. With $lock nobody waits for another taker.
select r.tenant_id, r.subscriber, r.receipt_key, r.seq, r.rev, r.status, r.reason, r.holds, r.source, r.message_id, r.message_type, r.lane, r.version, r.headers, r.body, r.position, {when r.message_at}, r.attempts, r.failures, {when r.received_at}, {when r.changed_at}, {when r.next_at}, r.sealed, r.seen, {when r.seen_at}, {when r.body_until}, {when r.gone_at}, $clock
from {table receipts} r force index ({name receipts_due})
where r.subscriber = $subscriber and r.next_at <= $at
order by r.next_at, r.seq
limit $limit
$lock
