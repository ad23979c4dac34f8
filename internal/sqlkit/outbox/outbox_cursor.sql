select owner, fence from {table outbox_cursors} where group_name = $group and part = $part {lock}
