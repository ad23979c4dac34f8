package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"fmt"

	"github.com/idempo/idempo/internal/sqlkit"
)

//go:embed queries/*.sql migrations/*.sql
var files embed.FS

// query is one statement of the store: its text, and prepared on the writing and on the reading handle.
type query struct {
	text        string
	write, read *sql.Stmt
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

// prepare compiles every statement once on each handle; a connection opened later compiles it again by itself.
func (q queries) prepare(ctx context.Context, writer, reader *sql.DB) (err error) {
	for name, one := range q {
		if one.write, err = writer.PrepareContext(ctx, one.text); err != nil {
			return fmt.Errorf("sqlite: query %s: %w", name, shown(err))
		}
		if !readable(name) {
			continue
		}
		if one.read, err = reader.PrepareContext(ctx, one.text); err != nil {
			return fmt.Errorf("sqlite: query %s: %w", name, shown(err))
		}
	}
	return nil
}

func (q queries) close() {
	for _, one := range q {
		if one.write != nil {
			_ = one.write.Close()
		}
		if one.read != nil {
			_ = one.read.Close()
		}
	}
}
