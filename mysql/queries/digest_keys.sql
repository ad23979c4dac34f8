select id, mark from {table digest_keys} order by id
