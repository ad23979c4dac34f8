update {table outbox_relays} set until_at = $until_at where group_name = $group and owner = $owner
