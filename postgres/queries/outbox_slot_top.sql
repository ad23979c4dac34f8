select coalesce(max(seq), 0) from {table outbox} where slot = $seq
