lock table only {table outbox_6} in access exclusive mode
