lock table only {table outbox_0} in access exclusive mode
