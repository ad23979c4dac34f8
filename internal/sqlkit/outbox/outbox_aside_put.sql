update {table outbox_asides} set state = $state, class = $class, holds = $hold, attempts = $attempts, starts = $starts, due_at = $due_from, last_at = $at, replay = $replay, taken = 0
where group_name = $group and seq = $seq
