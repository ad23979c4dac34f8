module github.com/idempo/idempo/internal/storecheck

go 1.26.0
