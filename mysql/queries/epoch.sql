select epoch from {table meta}
