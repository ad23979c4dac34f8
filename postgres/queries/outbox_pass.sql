-- A transaction that gets a number and ends.
select pg_current_xact_id()::text
