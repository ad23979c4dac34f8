update {table records} set token = null, rev = rev + 1 where state = 'in_doubt' and token is not null
