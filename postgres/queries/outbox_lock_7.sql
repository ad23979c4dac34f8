lock table only {table outbox_7} in access exclusive mode
