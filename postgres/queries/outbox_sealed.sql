select exists (select from (select sealed from {table outbox} order by seq desc limit 1000) o where o.sealed is not null)
