update {table outbox_state} set environment = $environment where environment = ''
