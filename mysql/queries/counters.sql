select start, process, data from {table counters} where span = $span and start >= $begin_at order by start, process
