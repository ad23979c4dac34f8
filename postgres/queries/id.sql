-- Which store a schema is.
select store_id from {table meta}
