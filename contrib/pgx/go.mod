module github.com/idempo/idempo/contrib/pgx

go 1.26.0
