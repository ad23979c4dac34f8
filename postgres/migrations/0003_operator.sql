-- The audit says why something was refused, and stays: rows are added, never changed and never removed.
alter table {table audit} add column code text not null default '';
create index {name audit_ref} on {table audit} (substr(idempotency_key, 1, 16)) where idempotency_key is not null;
create function {table audit_append_only}() returns trigger language plpgsql as $body$
begin
    raise exception 'idempo: the audit is append-only';
end $body$;
create trigger {name audit_append_only} before update or delete or truncate on {table audit}
    for each statement execute function {table audit_append_only}();

-- down
-- only while empty: audit
drop trigger {name audit_append_only} on {table audit};
drop function {table audit_append_only}();
drop index {table audit_ref};
alter table {table audit} drop column code;
