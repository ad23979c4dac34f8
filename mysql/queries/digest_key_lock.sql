-- Processes that start at once compare their keys one after the other.
select one from {table meta} for update
