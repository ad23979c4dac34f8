insert into {table counters} (span, start, process, data) values ($span, $begin_at, $process, $data)
on duplicate key update data = values(data)
