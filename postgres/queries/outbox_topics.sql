select o.topic, count(*), sum(o.size)::bigint, min(o.at) from (
    select topic, coalesce(octet_length(payload), 0) as size, (extract(epoch from appended_at) * 1000000)::bigint as at from {table outbox} limit 1000000
) o group by o.topic order by o.topic
