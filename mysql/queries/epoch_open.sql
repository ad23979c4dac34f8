-- While a window is open a leased claim of a key that is not found is refused at its insert; the store then writes what may have
-- been lost, a record without an owner. It does nothing once the window is over.
create trigger {table lost_claims} before insert on {table records} for each row
    if new.state = 'pending' and new.guard = 'leased' and new.token is not null
        and exists (select 1 from {table meta} where epoch_until > utc_timestamp(6)) then
        signal sqlstate '45000' set mysql_errno = 1644, message_text = 'idempo: commits of the database were lost, this key may have run before';
    end if
