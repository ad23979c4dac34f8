-- What inboxes keep beside the records: messages that failed, wait, or wait for a person. A message that has its effect
-- at once leaves no row. Texts of a message are bytes, since a broker may deliver any.
create table if not exists {table receipts} (
    seq          bigint not null auto_increment,
    tenant_id    varbinary(255) not null,
    subscriber   varbinary(190) not null,
    receipt_key  varbinary(32) not null,
    rev          bigint not null,
    status       varchar(16) character set ascii collate ascii_bin not null,
    reason       varbinary(64) not null,
    holds        tinyint(1) not null, -- later messages of its lane wait for it
    source       mediumblob not null,
    message_id   mediumblob not null,
    message_type mediumblob not null,
    lane         varbinary(1024) not null,
    version      mediumblob not null,
    headers      longblob,
    body         longblob,
    position     mediumblob not null,
    message_at   datetime(6),
    attempts     int not null,
    failures     longblob, -- JSON: when, and the error of each
    received_at  datetime(6) not null,
    changed_at   datetime(6) not null,
    next_at      datetime(6), -- null: by itself it is never due
    primary key (tenant_id, subscriber, receipt_key),
    unique key {name receipts_seq} (seq),
    key {name receipts_due} (subscriber, next_at, seq),
    key {name receipts_lane} (tenant_id, subscriber, lane, holds, seq),
    key {name receipts_list} (subscriber, seq)
) engine = InnoDB row_format = dynamic default character set utf8mb4 collate utf8mb4_bin;

-- The version that a lane has reached. The lane '' of the tenant '' is the subscriber itself: since when it is there.
-- Whoever is in a lane has its row locked, also one that is only there, inserted and deleted, until the transaction ends.
create table if not exists {table lanes} (
    tenant_id  varbinary(255) not null,
    subscriber varbinary(190) not null,
    lane       varbinary(1024) not null,
    version    mediumblob,
    created_at datetime(6) not null,
    changed_at datetime(6) not null,
    primary key (tenant_id, subscriber, lane)
) engine = InnoDB row_format = dynamic default character set utf8mb4 collate utf8mb4_bin;

-- down
-- only while empty: receipts, lanes
drop table if exists {table receipts};
drop table if exists {table lanes};
