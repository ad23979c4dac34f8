package dashboard

import (
	"context"
	"net/http"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
)

// patience is how long a page waits for the store.
const patience = 10 * time.Second

// overviewPage is what the first page shows.
type overviewPage struct {
	Stats   operator.Stats
	Total   int64
	About   bool // Total is an estimate
	Tiles   []tile
	InDoubt operator.Count
	Oldest  oldest // in doubt
	Longest oldest // pending
	Recent  []operator.Entry
	Meter   *metered // nil: this process counts nothing
}

// tile is one state with its count and where to see its keys.
type tile struct {
	State idempo.State
	Count operator.Count
	Share string
	X, W  float64 // its part of the bar, in hundredths
}

// oldest is the record that is longest in its state.
type oldest struct {
	Ref       string
	Operation string
	For       time.Duration
}

func oldestOf(o operator.Oldest, now time.Time) oldest {
	if o.Since.IsZero() {
		return oldest{}
	}
	return oldest{Ref: o.Key.Ref(), Operation: o.Key.Operation, For: max(now.Sub(o.Since), 0)}
}

func (h *Handler) overview(v *visit) error {
	ctx, cancel := context.WithTimeout(v.ctx(), patience)
	defer cancel()
	stats, err := h.config.Operator.Stats(ctx, operator.StatsParams{By: v.by})
	if err != nil {
		return err
	}
	p := overviewPage{Stats: stats, InDoubt: stats.Of(idempo.StateInDoubt), Oldest: oldestOf(stats.OldestInDoubt, stats.Now), Longest: oldestOf(stats.OldestPending, stats.Now)}
	for _, c := range stats.Counts {
		p.Total += c.Records
		p.About = p.About || c.Estimate
	}
	x := 0.0
	for _, c := range stats.Counts {
		w := float64(c.Records) / float64(max(p.Total, 1)) * 100
		if c.Records > 0 {
			w = max(w, 0.6) // what exists can be seen
		}
		p.Tiles = append(p.Tiles, tile{State: c.State, Count: c, Share: percent(c.Records, p.Total), X: x, W: w})
		x += w
	}
	for i := range p.Tiles { // back to a hundred
		p.Tiles[i].X, p.Tiles[i].W = p.Tiles[i].X/max(x, 1)*100, p.Tiles[i].W/max(x, 1)*100
	}
	audit, err := h.config.Operator.Audit(ctx, operator.ReadAuditParams{By: v.by, Find: operator.AuditParams{Newest: true, Limit: 5}})
	if err != nil && operator.CodeOf(err) != operator.CodeUnsupported {
		return err
	}
	p.Recent = audit.Entries
	p.Meter = h.meter(v)
	v.render(http.StatusOK, "overview", pageData{Title: "Overview", Nav: "overview", Doubt: p.InDoubt.Records, Body: p})
	return nil
}
