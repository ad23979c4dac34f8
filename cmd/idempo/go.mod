module github.com/idempo/idempo/cmd/idempo

go 1.26.0
