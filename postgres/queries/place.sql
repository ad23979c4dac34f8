-- Whether this store's tables are to be found where a caller's transaction runs. Fails nowhere.
select to_regclass($records) is not null
