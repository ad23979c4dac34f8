package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"sync"

	"github.com/idempo/idempo/internal/sqlkit"
)

//go:embed queries/*.sql migrations/*.sql
var files embed.FS

// query is one statement of the store: its text, and prepared on the reading handle once it was used there.
type query struct {
	text string

	mu   sync.Mutex
	read *sql.Stmt
}

// queries are the store's statements by the name of their file.
type queries map[string]*query

func loadQueries(n sqlkit.Names) (queries, error) {
	texts, err := n.Queries(files, "queries", nil)
	if err != nil {
		return nil, fmt.Errorf("sqlite: %w", err)
	}
	q := make(queries, len(texts))
	for name, text := range texts {
		q[name] = &query{text: text}
	}
	return q, nil
}

// reading returns the statement prepared on the reading handle. A connection opened later compiles it by itself.
func (s *Store) reading(ctx context.Context, name string) (*sql.Stmt, error) {
	q := s.queries[name]
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.read == nil {
		st, err := s.reader.PrepareContext(ctx, q.text)
		if err != nil {
			return nil, err
		}
		q.read = st
	}
	return q.read, nil
}

// readRows runs a query on a reading connection.
func (s *Store) readRows(ctx context.Context, name string, args ...any) (*sql.Rows, error) {
	st, err := s.reading(ctx, name)
	if err != nil {
		return nil, err
	}
	return st.QueryContext(ctx, args...)
}

func (q queries) close() {
	for _, one := range q {
		one.mu.Lock()
		if one.read != nil {
			_ = one.read.Close()
		}
		one.mu.Unlock()
	}
}
