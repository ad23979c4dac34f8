update {table outbox_asides} set state = $state, class = $class, holds = $hold, attempts = $attempts, starts = $starts, due_at = $due_from, last_at = $at, taken = 0,
    first_error = $first_error, last_error = case when $error = '' then last_error else $error end
where group_name = $group and seq = $seq
