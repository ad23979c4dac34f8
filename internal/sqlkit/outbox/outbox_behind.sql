select {asides} from {table outbox_asides}
where group_name = $group and tenant = $tenant and event_key = $event_key and seq > $seq and state = 'queued' order by seq limit $limit
