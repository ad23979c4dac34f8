update {table outbox_asides} set starts = starts + 1, due_at = $due_from, taken = 1 where group_name = $group and seq = $seq
