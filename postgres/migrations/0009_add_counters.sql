-- What processes have counted, for the plots and the numbers that outlive them: a row for each process and stretch of time.
create table {table counters} (
    span    bigint not null, -- seconds
    start   bigint not null, -- seconds since 1970
    process text collate "C" not null,
    data    bytea not null,
    constraint {name counters_pkey} primary key (span, start, process)
) with (fillfactor = 50); -- a row is written again every ten seconds

-- down
drop table {table counters};
