module github.com/idempo/idempo/examples

go 1.26.0
