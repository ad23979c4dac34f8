insert into {table counters} (span, start, process, data) values ($span, $begin_at, $process, $data)
on conflict (span, start, process) do update set data = excluded.data
