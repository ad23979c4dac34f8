select distinct topic from {table outbox} where slot = $seq
