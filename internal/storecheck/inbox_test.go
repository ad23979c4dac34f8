package storecheck

import (
	"testing"

	"github.com/idempo/idempo/storetest"
)

func TestPostgresInbox(t *testing.T) {
	t.Parallel()
	dsn := postgresDSN(t)
	for _, o := range pgOpeners() {
		t.Run("[messages/I1, I4] "+o.name, func(t *testing.T) {
			t.Parallel()
			c := kitCaps(t)
			c.Lanes = true
			storetest.RunInbox(t, func(t testing.TB) storetest.Subject { return o.subject(t, dsn) }, c)
		})
	}
}

func TestSQLiteInbox(t *testing.T) {
	t.Parallel()
	storetest.RunInbox(t, sqliteSubject, kitCaps(t))
}

func TestMySQLInbox(t *testing.T) {
	t.Parallel()
	t.Run("[messages/I1, I4] MySQL or MariaDB", func(t *testing.T) {
		t.Parallel()
		c := kitCaps(t)
		c.Lanes = true
		storetest.RunInbox(t, func(t testing.TB) storetest.Subject { return mysqlSubject(t, nil) }, c)
	})
}
