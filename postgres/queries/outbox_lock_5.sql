lock table only {table outbox_5} in access exclusive mode
