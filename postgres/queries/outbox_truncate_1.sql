truncate only {table outbox_1}
