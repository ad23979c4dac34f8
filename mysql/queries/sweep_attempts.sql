delete from {table attempts} where ($keys)
