-- What the owner before was trying is due again: nobody knows what became of it.
update {table outbox_asides} set due_at = $at, taken = 0 where group_name = $group and part = $part and taken = 1
