-- What processes have counted, for the plots and the numbers that outlive them: a row for each process and stretch of time.
create table if not exists {table counters} (
    span    bigint not null,
    start   bigint not null,
    process varbinary(64) not null,
    data    mediumblob not null,
    primary key (span, start, process)
) engine = InnoDB row_format = dynamic default character set utf8mb4 collate utf8mb4_bin;

-- down
drop table if exists {table counters};
