package dashboard

import (
	"time"

	"github.com/idempo/idempo/operator"
)

// plot is a window as bars, in a box of 600 by 120.
type plot struct {
	Bars   []bar
	Width  float64 // of a bar
	Top    int64   // calls of the highest bar
	Any    bool
	Ago    string // how long ago the first bar begins
	Middle string
	Each   string // how long a bar is
	Name   string // of a bar, in the table
}

// bar is one stretch: parts stand on each other, from the bottom.
type bar struct {
	X                                float64
	RunY, RunH, ReplayY, ReplayH     float64
	RefusedY, RefusedH               float64
	RunN, ReplayN, RefusedN, ErrorsN int64
	At                               time.Time
}

const plotWidth, plotHeight = 600.0, 120.0

func plotOf(m operator.Measured) *plot {
	p := &plot{}
	switch m.Window.Name {
	case "day":
		p.Ago, p.Middle, p.Each, p.Name = "24 hours ago", "12 hours ago", "15 minutes", "Quarter of an hour"
	case "month":
		p.Ago, p.Middle, p.Each, p.Name = "30 days ago", "15 days ago", "six hours", "Quarter of a day"
	default:
		p.Ago, p.Middle, p.Each, p.Name = "an hour ago", "30 minutes ago", "minute", "Minute"
	}
	for _, one := range m.Bars {
		p.Top = max(p.Top, one.All())
	}
	p.Any = p.Top > 0
	scale, step := plotHeight/float64(max(p.Top, 1)), plotWidth/float64(max(len(m.Bars), 1))
	p.Width = step * 0.8
	for i, one := range m.Bars {
		b := bar{X: float64(i) * step, At: one.At, RunN: one.Run, ReplayN: one.Replay, RefusedN: one.Refused(), ErrorsN: one.Error}
		b.RunH, b.ReplayH, b.RefusedH = float64(one.Run)*scale, float64(one.Replay)*scale, float64(one.Refused()+one.Error)*scale
		b.RunY = plotHeight - b.RunH
		b.ReplayY = b.RunY - b.ReplayH
		b.RefusedY = b.ReplayY - b.RefusedH
		p.Bars = append(p.Bars, b)
	}
	return p
}

// windowLink is one choice of how far back the plot looks.
type windowLink struct {
	Name, Text string
	On         bool
}

func windowLinks(now string) []windowLink {
	out := []windowLink{{Name: "hour", Text: "1 hour"}, {Name: "day", Text: "24 hours"}, {Name: "month", Text: "30 days"}}
	for i := range out {
		out[i].On = out[i].Name == now
	}
	return out
}

// metered is what was counted, as the overview shows it.
type metered struct {
	operator.Measured
	Plot    *plot
	Windows []windowLink
	Advice  []operator.Advice
	Failing bool // the store did not tell; these are the numbers of this process
}

// RunP99 and WaitP99 are at most a quarter too long.
func (m *metered) RunP99() time.Duration { return m.RunTimes.Quantile(0.99) }

// WaitP99 is how long duplicates waited, see RunP99.
func (m *metered) WaitP99() time.Duration { return m.WaitTimes.Quantile(0.99) }

// meter measures the window that the address asks for; nil: this process counts nothing, or its numbers are not for who asks.
func (h *Handler) meter(v *visit) *metered {
	if h.config.Meter == nil || v.by.Tenants != nil { // they are of all tenants together
		return nil
	}
	window := operator.Windows()[0]
	for _, w := range operator.Windows() {
		if w.Name == v.r.URL.Query().Get("window") {
			window = w
		}
	}
	got, err := h.config.Meter.Measure(v.ctx(), window)
	m := &metered{Measured: got, Plot: plotOf(got), Windows: windowLinks(window.Name), Failing: err != nil}
	if h.config.Operations == nil {
		return m
	}
	kept := map[string]time.Duration{}
	for _, o := range h.config.Operations() {
		kept[o.Name] = o.Retention
	}
	for _, o := range got.Operations {
		if a, ok := operator.Advise(o, kept[o.Name]); ok {
			m.Advice = append(m.Advice, a)
		}
	}
	return m
}
