-- Which store this is, and in which database the connection is.
select store_id, coalesce(database(), '') from {table meta}
