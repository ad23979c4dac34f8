select version, name, sha256, applied_at, applied_by from {table migrations} order by version
