-- After a crash of the server: nobody's place in memory counts any more.
update {table outbox_cursors} set owner = '', fence = fence + 1
