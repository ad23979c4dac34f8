package sqlkit

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/idempo/idempo"
)

// packed is the select list {packed} of SQLite: all of Columns but the body as one text, then the body. Drivers spend more
// on each column of a row than SQLite on all of them, so that forty of them cost a replay twice what two do. Numbers stand
// as they are, texts in hexadecimal, bytes as quote writes them, so that none is told from empty. words are as in columns.
func packed(words []string) string {
	lead, drop := leadAndDrop(words)
	var row Row
	row.Micros = true
	dest := row.Dest()
	body := "null"
	var args strings.Builder
	for i, name := range Columns() {
		col := lead + name
		switch _, text := dest[i].(**string); {
		case name == "response_body":
			if !drop[name] {
				body = col
			}
			continue
		case drop[name]:
			col = "'NULL'"
		case text:
			col = "hex(" + col + ")"
		default:
			if _, bytes := dest[i].(*[]byte); bytes {
				col = "quote(" + col + ")"
			}
		}
		args.WriteString(", " + col)
	}
	format := strings.TrimSuffix(strings.Repeat("%s|", len(dest)-1), "|")
	return "printf('" + format + "'" + args.String() + "), " + body
}

// Unpack fills the row from the two columns of {packed}. A row that does not parse is code record_unreadable, as of Record.
func (r *Row) Unpack(text string, body []byte) error {
	if err := r.unpack(text, body); err != nil {
		return &idempo.Error{Op: "read", Code: "record_unreadable", KeyRef: idempo.Key{ID: string(r.key)}.Ref(), Err: err}
	}
	return nil
}

func (r *Row) unpack(text string, body []byte) error {
	r.Micros, r.body = true, body
	numbers, flags, texts := make([]int64, 0, 24), make([]bool, 0, 4), make([]string, 0, 24)
	raw := make([]byte, len(text)/2)
	for i, d := range r.Dest() {
		if d == &r.body { // stands by itself; the names of the others are asked for where one is wrong
			continue
		}
		var field string
		field, text, _ = strings.Cut(text, "|")
		if field == "" || field == "NULL" {
			continue
		}
		switch d := d.(type) {
		case **string:
			n, err := hex.Decode(raw, []byte(field))
			if err != nil {
				return fmt.Errorf("column %s: %w", Columns()[i], err)
			}
			texts = append(texts, string(raw[:n]))
			*d = &texts[len(texts)-1]
		case *[]byte:
			if len(field) < 3 || field[0] != 'X' {
				return fmt.Errorf("column %s: no blob", Columns()[i])
			}
			n, err := hex.Decode(raw, []byte(field[2:len(field)-1]))
			if err != nil {
				return fmt.Errorf("column %s: %w", Columns()[i], err)
			}
			*d = append(make([]byte, 0, n), raw[:n]...)
		default:
			n, err := strconv.ParseInt(field, 10, 64)
			if err != nil {
				return fmt.Errorf("column %s: %w", Columns()[i], err)
			}
			if d, ok := d.(**bool); ok {
				flags = append(flags, n != 0)
				*d = &flags[len(flags)-1]
				continue
			}
			numbers = append(numbers, n)
			*d.(**int64) = &numbers[len(numbers)-1]
		}
	}
	if text != "" {
		return fmt.Errorf("more columns than there are")
	}
	return nil
}
