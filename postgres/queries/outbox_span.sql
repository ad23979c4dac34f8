update {table outbox_state} set span_days = $days where span_days < $days
