lock table only {table outbox_2} in access exclusive mode
