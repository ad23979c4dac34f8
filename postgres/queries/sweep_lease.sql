-- Takes the sweep lease, or tells that another process has it. Never waits.
with held as materialized (
    select sweeper from {table meta}
    where sweeper is null or sweeper = $sweeper or sweep_until <= clock_timestamp()
    for update skip locked
),
put as (
    update {table meta} set sweeper = $sweeper, sweep_until = clock_timestamp() + interval '15 seconds' from held returning 1
)
select (select count(*) from put)::int, (pg_relation_size($records::regclass) / current_setting('block_size')::int)::bigint
