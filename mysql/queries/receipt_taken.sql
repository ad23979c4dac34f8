-- Receipts that are locked go to a taker.
update {table receipts} set rev = rev + 1, attempts = attempts + 1, changed_at = $changed_at, next_at = $next_at where seq in ($seqs)
