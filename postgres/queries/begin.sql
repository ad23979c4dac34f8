-- The first statement of a transaction that InTx opens without a claim: its limits, and its start as its name.
select set_config('idle_in_transaction_session_timeout', $idle, true), (date_part('epoch', transaction_timestamp()) * 1000000)::bigint
