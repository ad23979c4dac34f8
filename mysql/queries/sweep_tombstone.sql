-- Results whose retention is over become tombstones.
update {table records} set state = 'expired', changed_at = utc_timestamp(6), request_detail = null, snapshot = null, note = null,
    trace = null, response_headers = null, response_body = null, body_kept = 0, watch_at = coalesce(gone_at, $endless), rev = rev + 1
where ($keys) and state = 'completed' and expires_at <= utc_timestamp(6)
