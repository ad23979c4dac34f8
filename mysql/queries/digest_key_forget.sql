delete from {table digest_keys} where id = $id
