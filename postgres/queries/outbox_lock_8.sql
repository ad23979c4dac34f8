lock table only {table outbox_8} in access exclusive mode
