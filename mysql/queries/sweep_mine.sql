update {table meta} set sweeper = $sweeper, sweep_until = utc_timestamp(6) + interval 15 second
