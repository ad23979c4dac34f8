update {table outbox_state} set gone_at = $at where gone_at < $at
