-- One message came again so many times.
update {table receipts} r set seen = r.seen + $times, seen_at = coalesce($now, clock_timestamp())
where r.tenant_id = $tenant_id and r.subscriber = $subscriber and r.receipt_key = $receipt_key
