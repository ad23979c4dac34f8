package storecheck

import (
	"database/sql"
	"testing"
)

// wal returns how much has been written ahead, and the next transaction id.
func wal(t testing.TB, db *sql.DB) (lsn, xid int64) {
	t.Helper()
	must(t, db.QueryRowContext(t.Context(), `select (pg_current_wal_insert_lsn() - '0/0')::bigint, (pg_snapshot_xmax(pg_current_snapshot())::text)::bigint`).Scan(&lsn, &xid))
	return lsn, xid
}
