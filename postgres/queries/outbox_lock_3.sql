lock table only {table outbox_3} in access exclusive mode
