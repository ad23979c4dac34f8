select payload, case when payload is null then 1 else 0 end from {table outbox_asides} where group_name = $group and seq = $seq
