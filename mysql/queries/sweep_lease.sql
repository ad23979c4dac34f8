-- Takes the sweep lease, or finds that another process has it. Never waits.
select 1 from {table meta}
where sweeper is null or sweeper = $sweeper or sweep_until <= utc_timestamp(6)
for update skip locked
