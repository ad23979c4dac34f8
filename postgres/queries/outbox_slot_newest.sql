-- The newest event of a slot, by any clock: one transaction may append long before it commits.
select coalesce((extract(epoch from max(appended_at)) * 1000000)::bigint, 0), count(*), coalesce(max(seq), 0) from {table outbox} where slot = $seq
