-- The tables of a store. MySQL commits at every DDL statement, so each can be run again: a migration that was killed is
-- finished by the next one. Keys compare as bytes whatever the server's collation; texts are UTF-8 in binary columns, which no
-- character set of a connection translates; times are UTC.
create table if not exists {table records} (
    tenant_id        varbinary(255) not null,
    operation        varbinary(200) not null,
    idempotency_key  varbinary(32) not null,
    alias_of         varbinary(32),
    request_hash     varbinary(255),
    request_recipe   blob,
    request_detail   longblob,
    state            varchar(16) character set ascii collate ascii_bin,
    guard            varchar(16) character set ascii collate ascii_bin,
    on_crash         varchar(16) character set ascii collate ascii_bin,
    surface          varchar(64) character set ascii collate ascii_bin,
    failing          tinyint(1) not null default 0,
    attempt          bigint not null default 0,
    generation       bigint not null default 1,
    token            varbinary(16),
    owner            blob,
    claimed_at       datetime(6),
    started_at       datetime(6),
    lease_until      datetime(6),
    status_code      int,
    response_headers longblob,
    response_body    longblob,
    body_size        bigint not null default 0,
    body_sha256      varbinary(32),
    body_kept        tinyint(1) not null default 0,
    resource_type    varbinary(255),
    resource_id      varbinary(255),
    refs             mediumblob,
    derived_key      varbinary(255),
    snapshot         longblob,
    due_at           datetime(6),
    note             blob,
    trace            blob,
    sealed           varbinary(255),
    format           smallint not null default 1,
    created_at       datetime(6) not null,
    changed_at       datetime(6) not null,
    completed_at     datetime(6),
    issued_until     datetime(6),
    expires_at       datetime(6),
    gone_at          datetime(6),
    -- The digests of the alias rows of this record, one after the other, so that no index has to find them.
    aliases          blob,
    -- When somebody should look at the record: the end of its first lease, then what the sweeper made of it. Completing a
    -- record does not change it, so that the plain way from claim to completion touches this index once.
    watch_at         datetime(6),
    -- Grows with every write, so that a write can tell whether it met the row that was read.
    rev              bigint not null default 0,
    primary key (tenant_id, operation, idempotency_key),
    key {name records_ref} (idempotency_key),
    key {name records_watch} (watch_at),
    constraint {name records_state} check (state in ('issued', 'pending', 'completed', 'failed', 'in_doubt', 'expired')),
    constraint {name records_guard} check (guard in ('atomic', 'leased')),
    constraint {name records_on_crash} check (on_crash in ('', 'hold', 'probe', 'rerun')),
    constraint {name records_whole} check (alias_of is not null or state is not null and guard is not null and on_crash is not null)
) engine = InnoDB row_format = dynamic default character set utf8mb4 collate utf8mb4_bin;

-- What an attempt had when it was taken over, settled by somebody else or retried.
create table if not exists {table attempts} (
    tenant_id       varbinary(255) not null,
    operation       varbinary(200) not null,
    idempotency_key varbinary(32) not null,
    generation      bigint not null,
    attempt         bigint not null,
    state           varchar(16) character set ascii collate ascii_bin,
    surface         varchar(64) character set ascii collate ascii_bin,
    owner           blob,
    status_code     int,
    failing         tinyint(1) not null default 0,
    note            blob,
    trace           blob,
    claimed_at      datetime(6),
    started_at      datetime(6),
    lease_until     datetime(6),
    completed_at    datetime(6),
    ended_at        datetime(6) not null,
    primary key (tenant_id, operation, idempotency_key, attempt)
) engine = InnoDB row_format = dynamic default character set utf8mb4 collate utf8mb4_bin;

-- What operators did, and what they were refused. Rows are added and never changed: who runs a store has no right to more. It
-- outlives the records.
create table if not exists {table audit} (
    id              bigint not null auto_increment primary key,
    at              datetime(6) not null,
    actor           blob not null,
    role            varbinary(64) not null default '',
    channel         varbinary(64) not null default '',
    action          varbinary(64) not null,
    outcome         varbinary(64) not null default 'done',
    code            varbinary(64) not null default '',
    tenant_id       varbinary(255) not null default '',
    operation       varbinary(200) not null default '',
    idempotency_key varbinary(32) not null default '',
    attempt         bigint not null default 0,
    state_before    varbinary(16) not null default '',
    state_after     varbinary(16) not null default '',
    reason          blob not null,
    evidence        blob not null,
    key {name audit_at} (at, id),
    key {name audit_ref} (idempotency_key, id)
) engine = InnoDB row_format = dynamic default character set utf8mb4 collate utf8mb4_bin;

-- One row: which store this is, what it holds, and who sweeps it.
create table if not exists {table meta} (
    one         tinyint not null default 1 primary key,
    store_id    varchar(36) character set ascii collate ascii_bin not null,
    format      int not null default 1,
    epoch       bigint not null default 1,
    epoch_until datetime(6),
    sweeper     varchar(64) character set ascii collate ascii_bin,
    sweep_until datetime(6),
    constraint {name meta_one} check (one = 1)
) engine = InnoDB row_format = dynamic default character set utf8mb4 collate utf8mb4_bin;
insert into {table meta} (store_id) select uuid() from dual where not exists (select 1 from (select one from {table meta}) as m);

-- Under which digest keys records may live, so that a process without one of them does not start. mark tells two values
-- of one id apart and shows neither.
create table if not exists {table digest_keys} (
    id       varbinary(255) not null primary key,
    mark     blob not null,
    added_at datetime(6) not null
) engine = InnoDB row_format = dynamic default character set utf8mb4 collate utf8mb4_bin;

-- down
-- only while empty: records, attempts, audit
drop table if exists {table migrations};
drop table if exists {table digest_keys};
drop table if exists {table records};
drop table if exists {table attempts};
drop table if exists {table audit};
drop table if exists {table meta};
