lock table only {table outbox_4} in access exclusive mode
