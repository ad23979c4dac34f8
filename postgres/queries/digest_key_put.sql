insert into {table digest_keys} (id, mark) values ($id, $mark) on conflict (id) do nothing
