update {table outbox_cursors} set win = $win, seq = $seq, starts = 0, moved_at = $at
where group_name = $group and part = $part
