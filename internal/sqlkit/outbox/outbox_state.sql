-- The outbox as a whole. Whoever changes groups, leases or epochs takes this row first.
select environment from {table outbox_state} {lock}
