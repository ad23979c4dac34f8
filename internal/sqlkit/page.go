package sqlkit

import (
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
)

// listBatch is how many rows a statement of a list returns at most, so that no snapshot outlives a short statement.
const listBatch = 500

// List makes a page of the stored records that batch reads: at most size of them, the first after a key in key order, or for
// p.Ref all that the reference stands for. p has been through WithDefaults. An error is batch's own.
func List(p operator.FindParams, batch func(after idempo.Key, size int) (records []idempo.Record, now time.Time, err error)) (operator.Page, error) {
	at := idempo.Key{Tenant: p.Tenant}
	if p.After != "" {
		var err error
		if at, err = operator.ParseCursor(p.After); err != nil {
			return operator.Page{}, err
		}
	}
	var page operator.Page
	match := p
	match.Ref = "" // the reference may be that of an alias
	for size := min(p.Limit+1, listBatch); ; size = min(2*size, listBatch) {
		records, now, err := batch(at, size)
		if err != nil {
			return operator.Page{}, err
		}
		for _, r := range records {
			at = r.Key
			eff, ok := match.Match(r, now)
			if !ok {
				continue
			}
			if len(page.Records) == p.Limit {
				page.Next = operator.Cursor(page.Records[p.Limit-1].Key)
				return page, nil
			}
			page.Records = append(page.Records, eff)
		}
		if len(records) < size || p.Ref != "" {
			return page, nil
		}
	}
}
