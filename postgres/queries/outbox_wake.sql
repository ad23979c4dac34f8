insert into {table outbox_alive} (token) values ($alive) on conflict (one) do nothing
