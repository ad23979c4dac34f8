module github.com/idempo/idempo/bench

go 1.26.0
