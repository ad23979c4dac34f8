select part, id, tenant, event_key, topic, state, holds, attempts, first_error from {table outbox_asides} where group_name = $group and seq = $seq {lock}
