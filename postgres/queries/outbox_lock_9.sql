lock table only {table outbox_9} in access exclusive mode
