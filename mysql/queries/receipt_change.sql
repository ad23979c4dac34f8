-- The successor of a revision that is locked.
update {table receipts} set rev = rev + 1, status = $status, reason = $reason, holds = $holds, attempts = $attempts, failures = $failures,
    changed_at = $changed_at, next_at = $next_at, body_until = $body_until, gone_at = $gone_at
where tenant_id = $tenant_id and subscriber = $subscriber and receipt_key = $receipt_key and rev = $rev
