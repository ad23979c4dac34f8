-- The receipt of a key, and the clock; of a key that has none, the clock alone. $lock makes it the row as it is now,
-- whatever the transaction has seen before.
select r.tenant_id, r.subscriber, r.receipt_key, r.seq, r.rev, r.status, r.reason, r.holds, r.source, r.message_id, r.message_type, r.lane, r.version, r.headers, r.body, r.position, {when r.message_at}, r.attempts, r.failures, {when r.received_at}, {when r.changed_at}, {when r.next_at}, r.sealed, r.seen, {when r.seen_at}, {when r.body_until}, {when r.gone_at}, $clock
from (select 1) one
left join {table receipts} r on r.tenant_id = $tenant_id and r.subscriber = $subscriber and r.receipt_key = $receipt_key
$lock
