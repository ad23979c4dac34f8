select owner, since_at, until_at from {table outbox_relays} where group_name = $group order by since_at, owner
