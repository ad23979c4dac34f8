select {bare asides} from {table outbox_asides} where group_name = $group and seq > $after order by seq limit $limit
