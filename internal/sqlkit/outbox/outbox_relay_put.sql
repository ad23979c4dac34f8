insert into {table outbox_relays} (group_name, owner, since_at, until_at) values ($group, $owner, $at, $until_at)
