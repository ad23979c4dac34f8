lock table only {table outbox_10} in access exclusive mode
