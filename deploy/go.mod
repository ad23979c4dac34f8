module github.com/idempo/idempo/deploy

go 1.26.0
