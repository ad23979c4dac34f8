update {table outbox_cursors} set starts = 0 where group_name = $group and part = $part
