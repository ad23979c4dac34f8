update {table outbox_cursors} set owner = $owner, fence = $fence, starts = $starts where group_name = $group and part = $part
