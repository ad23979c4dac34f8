-- concurrently
-- Work that is due later than the clock looks ahead, for lists of what is pending. Neither a plain call nor its completion has or
-- sets a due time, so that their updates stay within their page.
create index concurrently if not exists {name records_due} on {table records} (due_at) where due_at is not null;

-- down
drop index {table records_due};
