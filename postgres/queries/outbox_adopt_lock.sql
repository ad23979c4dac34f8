lock table {table outbox} in share row exclusive mode
