truncate only {table outbox_2}
