insert into {table digest_keys} (id, mark, added_at) values ($id, $mark, utc_timestamp(6)) on duplicate key update mark = {table digest_keys}.mark
