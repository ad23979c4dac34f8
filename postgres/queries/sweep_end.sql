-- Gives the sweep lease back: nothing is left for now.
update {table meta} set sweeper = null, sweep_until = null where sweeper = $sweeper
