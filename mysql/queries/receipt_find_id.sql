-- Of one message id.
select r.tenant_id, r.subscriber, r.receipt_key, r.seq, r.rev, r.status, r.reason, r.holds, r.source, r.message_id, r.message_type, r.lane, r.version, r.headers, case when $bodiless then null else r.body end, r.position, {when r.message_at}, r.attempts, r.failures, {when r.received_at}, {when r.changed_at}, {when r.next_at}, r.sealed, r.seen, {when r.seen_at}, {when r.body_until}, {when r.gone_at}, $clock
from {table receipts} r force index ({name receipts_message})
where r.subscriber = $subscriber and r.seq > $after and r.message_id = $message_id
    and ($tenant_id = '' or r.tenant_id = $tenant_id)
    and ($lane = '' or r.lane = $lane)
    and ($since is null or r.received_at >= $since) and ($until is null or r.received_at < $until)
order by r.seq
limit $limit
