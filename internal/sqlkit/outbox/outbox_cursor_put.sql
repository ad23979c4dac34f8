insert into {table outbox_cursors} (group_name, part, win, seq, moved_at) values ($group, $part, $win, $seq, $at)
