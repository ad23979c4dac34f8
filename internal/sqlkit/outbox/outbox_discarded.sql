select topic from {table outbox_discarded}
