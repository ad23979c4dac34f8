select (extract(epoch from appended_at) * 1000000)::bigint from {table outbox} order by seq limit 1
