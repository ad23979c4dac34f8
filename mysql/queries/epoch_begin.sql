-- A new epoch. Its number is the time at which it began, so that it is newer than any that the lost commits had.
update {table meta} set epoch = greatest(epoch + 1, unix_timestamp()), epoch_until = utc_timestamp(6) + interval $window microsecond
