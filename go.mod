module github.com/idempo/idempo

go 1.26.0
