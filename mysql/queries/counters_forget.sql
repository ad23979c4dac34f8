delete from {table counters} where span = $span and start < $begin_at
