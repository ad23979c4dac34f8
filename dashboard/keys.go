package dashboard

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
)

// keysPage is a part of the list of keys, or what a search found.
type keysPage struct {
	Query     string // of the search box
	Principal string
	Filter    filter
	Found     *search
	Rows      []idempo.Record
	Next      string // link to the next page; "": this is the last
	First     string // link to the first; "": this is it
	Export    string
	Command   string
	Places    []place
	States    []idempo.State
	Surfaces  []string
	Now       time.Time
	Took      bool // the store did not get through in time: there may be more
}

func surfaces() []string {
	return []string{"http", "grpc", "inbox", "webhook", "saga", "run", "task", "client", "mcp"}
}

// keys is one search box and the list.
func (h *Handler) keys(v *visit) error {
	ctx, cancel := context.WithTimeout(v.ctx(), patience)
	defer cancel()
	q := v.r.URL.Query()
	f, err := filterOf(q)
	if err != nil {
		return err
	}
	p := keysPage{Query: q.Get("q"), Principal: q.Get("principal"), Filter: f, States: operator.States(), Surfaces: surfaces()}
	if p.Query != "" {
		found, err := v.searchFor(ctx, p.Query, place{f.Tenant, f.Operation}, p.Principal)
		if err != nil {
			return err
		}
		if len(found.Refs) == 1 && len(found.Held) == 0 {
			http.Redirect(v.w, v.r, h.config.Prefix+"/keys/"+found.Refs[0], http.StatusSeeOther)
			return nil
		}
		p.Found = &found
		for _, ref := range found.Refs {
			shown, err := v.show(ctx, ref)
			if err == nil {
				p.Rows = append(p.Rows, shown.Record)
			}
		}
	} else {
		page, err := h.config.Operator.List(ctx, operator.ListParams{By: v.by, Find: f.params, Stuck: f.Stuck})
		if err != nil {
			return err
		}
		p.Rows = page.Records
		if page.Next != "" {
			next := f.Query()
			next.Set("after", page.Next)
			p.Next = link(h.config.Prefix+"/keys", next)
		}
		if f.After != "" {
			p.First = link(h.config.Prefix+"/keys", f.Query())
		}
	}
	if len(p.Rows) > 0 {
		p.Now = p.Rows[0].Now
	}
	p.Export, p.Command = link(h.config.Prefix+"/keys.ndjson", f.Query()), "idempo keys list"+f.flags()
	if p.Places, _, err = v.places(ctx, place{}, 100); err != nil {
		return err
	}
	v.render(http.StatusOK, "keys", pageData{Title: "Keys", Nav: "keys", Body: p})
	return nil
}

// Tenants and Operations are words for the filters: what exists, so that nobody has to guess.
func (p keysPage) Tenants() []string {
	return distinct(p.Places, func(o place) string { return o.Tenant })
}

// Operations are the operations that keys exist of.
func (p keysPage) Operations() []string {
	return distinct(p.Places, func(o place) string { return o.Operation })
}

func distinct(places []place, part func(place) string) (out []string) {
	seen := map[string]bool{}
	for _, p := range places {
		if word := part(p); !seen[word] {
			seen[word] = true
			out = append(out, word)
		}
	}
	return out
}

// quick is a filter that people want often, as a link.
type quick struct {
	Name, Href string
	On         bool
}

// Quick are the states as links, beside those that are stuck.
func (p keysPage) Quick(prefix string) []quick {
	all := []quick{{Name: "all", Href: prefix + "/keys", On: !p.Filter.Any() && p.Query == ""}}
	for _, s := range p.States {
		all = append(all, quick{Name: stateName(s), Href: prefix + "/keys?state=" + url.QueryEscape(string(s)), On: p.Filter.State == string(s) && !p.Filter.Stuck})
	}
	return append(all, quick{Name: "stuck", Href: prefix + "/keys?stuck=1", On: p.Filter.Stuck})
}
