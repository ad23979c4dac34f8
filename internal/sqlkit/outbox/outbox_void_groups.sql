update {table outbox_groups} set epoch = epoch + 1
