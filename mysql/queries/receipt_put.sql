-- A new receipt. The primary key decides: LAST_INSERT_ID is its number, or 0 where there was one.
insert into {table receipts} (tenant_id, subscriber, receipt_key, rev, status, reason, holds, source, message_id, message_type, lane, version,
    headers, body, position, message_at, attempts, failures, received_at, changed_at, next_at, sealed, body_until, gone_at)
values ($tenant_id, $subscriber, $receipt_key, 1, $status, $reason, $holds, $source, $message_id, $message_type, $lane, $version,
    $headers, $body, $position, $message_at, $attempts, $failures, $at, received_at, case when $due then received_at + interval $delay microsecond end,
    $sealed, case when $body_for > 0 then received_at + interval $body_for microsecond end, case when $keep_for > 0 then received_at + interval $keep_for microsecond end)
on duplicate key update rev = rev + 0 * last_insert_id(0)
