-- One message came again so many times.
update {table receipts} set seen = seen + $times, seen_at = $at
where tenant_id = $tenant_id and subscriber = $subscriber and receipt_key = $receipt_key
