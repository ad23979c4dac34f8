select part, owner, fence, starts, win, seq from {table outbox_cursors} where group_name = $group order by part {lock}
