lock table only {table outbox_1} in access exclusive mode
