-- At one position, or at the places within it: a 0 follows the slash.
select r.tenant_id, r.subscriber, r.receipt_key, r.seq, r.rev, r.status, r.reason, r.holds, r.source, r.message_id, r.message_type, r.lane, r.version, r.headers, case when $bodiless then null else r.body end, r.position, r.message_at, r.attempts, r.failures, r.received_at, r.changed_at, r.next_at, r.sealed, r.seen, r.seen_at, r.body_until, r.gone_at, coalesce($now, clock_timestamp())
from {table receipts} r
where r.subscriber = $subscriber and r.seq > $after and r.position <> ''
    and (r.position = $position or r.position >= $position || '/'::bytea and r.position < $position || '0'::bytea)
    and ($tenant_id = '' or r.tenant_id = $tenant_id)
    and (length($lane) = 0 or r.lane = $lane)
    and ($since is null or r.received_at >= $since) and ($until is null or r.received_at < $until)
order by r.seq
limit $limit
