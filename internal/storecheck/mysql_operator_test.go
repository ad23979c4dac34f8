package storecheck

import (
	"testing"

	"github.com/idempo/idempo/mysql"
)

func TestMySQLOperator(t *testing.T) {
	t.Parallel()
	testOperator(t, func(t *testing.T) operated { return newMySQL(t, mysql.Options{}, nil).Store })
}
