package pagecheck

import (
	"slices"
	"testing"
)

func TestPictures(t *testing.T) {
	t.Run("[operations/UI13] [operations/UI15] every page, light, dark and 320 pixels wide: no complaint, no sideways scroll", func(t *testing.T) {
		s := newStage(t, "/ops/idempo")
		ref := s.day()
		s.month()
		for _, look := range []struct {
			name string
			view view
			keep []string
		}{{"", view{}, []string{"overview", "month", "mismatches", "keys", "doubt", "key", "audit"}}, {"-dark", view{dark: true}, []string{"overview", "month", "mismatches", "key"}},
			{"-narrow", view{width: 320, height: 700}, []string{"overview", "doubt"}}} {
			b := openTab(t, look.view)
			for _, p := range []struct{ name, path string }{{"overview", "/"}, {"keys", "/keys?outcome=completed"}, {"doubt", "/doubt"}, {"key", "/keys/" + ref}, {"audit", "/audit"},
				{"settings", "/settings"}, {"month", "/?window=month"}, {"quarters", "/?window=day"}, {"mismatches", "/mismatches?window=month"}, {"nothing", "/keys?q=nobody"}} {
				b.open(s.url(p.path))
				b.narrow()
				if p.name == "keys" {
					b.open(s.url("/keys"))
				}
				if slices.Contains(look.keep, p.name) {
					b.keep("dashboard-" + p.name + look.name)
				}
			}
		}
	})
}
