select gone_at from {table outbox_state}
