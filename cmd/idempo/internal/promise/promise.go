package promise

import (
	"crypto/rand"
	"net/http"
	"strings"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/cmd/idempo/internal/config"
	"github.com/idempo/idempo/contract"
	"github.com/idempo/idempo/gateway"
	"github.com/idempo/idempo/memstore"
	"github.com/idempo/idempo/webhook"
)

// Of is the contract of settings whose routes are declared as given.
func Of(s *config.Settings, routes []gateway.DeclaredRoute, version string) *contract.Contract {
	c := contract.New("idempo gateway", version)
	for _, r := range routes {
		if r.Guarded {
			c.Add(r.Match, r.Declared)
			continue
		}
		c.OptOut(r.Match, "passes through the gateway untouched")
	}
	for _, src := range s.Webhooks.Config.Sources {
		c.Consume(consumer(s, src))
	}
	return c
}

// Read is the contract of settings that nothing serves yet. It opens no store and listens nowhere: routes are declared to an engine in
// memory, since what it promises depends on the declaration alone.
func Read(s *config.Settings, version string) (*contract.Contract, error) {
	g := declaredOnly(s.Gateway)
	if len(g.Routes) == 0 {
		return Of(s, nil, version), nil
	}
	e := s.Engine
	engine, err := idempo.New(memstore.New(memstore.Options{}), idempo.Config{
		DigestKeys: []idempo.Secret{{ID: "contract", Value: []byte(rand.Text() + rand.Text())}}, // nothing is ever stored under it
		Lease:      e.Lease, Renew: e.Renew, Retention: e.Retention, Tombstone: e.Tombstone, IssuedFor: e.IssuedFor, MaxResult: e.MaxResult, Wait: e.Wait, ProbeEvery: e.ProbeEvery,
	})
	if err != nil {
		return nil, err
	}
	gw, err := gateway.New(engine, g)
	if err != nil {
		return nil, err
	}
	defer gw.Close()
	return Of(s, gw.Declared(), version), nil
}

// declaredOnly leaves out what reaches beyond the declaration: certificates, key sets, health checks. Who the tenant is stays a fact; where
// it comes from is not part of the promise.
func declaredOnly(c gateway.Config) gateway.Config {
	c.TLS = gateway.TLS{}
	if !c.Tenant.Global && c.Tenant != (gateway.Tenant{}) {
		t := gateway.Tenant{Header: "X-Tenant"}
		if c.Tenant.Principal != "" {
			t.Principal = "X-Principal"
		}
		c.Tenant, c.TrustedProxies = t, []string{"127.0.0.1"}
	}
	up := map[string]gateway.Upstream{}
	for name, u := range c.Upstreams {
		up[name] = gateway.Upstream{URLs: u.URLs}
	}
	c.Upstreams = up
	return c
}

// consumer is what a webhook source promises of the events it receives.
func consumer(s *config.Settings, src webhook.Source) contract.Consumer {
	p := profile(s, src.Provider)
	m := contract.Message{KeyedBy: []string{"tenant", "source", "id"}, Guard: string(idempo.GuardLeased), SameIDOtherBody: "park", MissingID: src.MissingID, Attempts: src.Retry.Attempts,
		Order: src.Order.Mode, DeadLetter: "kept with the receipts of " + src.Name + ", for a person"}
	shapes := []webhook.Shape{p.Shape}
	for _, items := range p.Items {
		shapes = append(shapes, items.Shape)
	}
	for _, shape := range shapes {
		if m.ID == nil && len(shape.IDs) > 0 {
			m.ID = identity(shape.IDs[0])
		}
		if len(shape.Tracks) > 0 && m.Order == "" {
			m.Order = "serial"
		}
		if len(shape.Tracks) > 0 && len(shape.Tracks[0].Lane) > 0 && m.OrderKey == "" {
			_, m.OrderKey = place(shape.Tracks[0].Lane[0])
		}
	}
	if m.ID == nil {
		m.ID = &contract.MessageID{In: "payload", Name: "/"}
	}
	switch m.MissingID {
	case "":
		m.MissingID = "park"
	case "content":
		m.MissingID = "digest"
	case "refuse":
		m.MissingID = "reject"
	}
	if m.Order == "" {
		m.Order = "none"
	}
	if m.Attempts == 0 {
		m.Attempts = 12
	}
	kept := src.Retention
	if kept == 0 {
		kept = p.Retention
	}
	if kept == 0 {
		kept = 35 * 24 * time.Hour
	}
	m.Retention = contract.FormatDuration(11 * kept) // the answer, and ten times as long the fact
	return contract.Consumer{Name: src.Name, Channel: s.Webhooks.Path + "/" + src.Name, Message: m}
}

func profile(s *config.Settings, name string) webhook.Profile {
	for _, p := range append(s.Webhooks.Config.Providers, webhook.Providers()...) {
		if p.Name == name {
			return p
		}
	}
	return webhook.Profile{}
}

func identity(id webhook.ID) *contract.MessageID {
	if len(id.Parts) == 0 {
		return nil
	}
	in, name := place(id.Parts[0])
	return &contract.MessageID{In: in, Name: name}
}

func place(p webhook.Part) (in, name string) {
	switch {
	case p.Header != "":
		return "header", http.CanonicalHeaderKey(p.Header)
	case p.JSON != "":
		return "payload", p.JSON
	}
	return "payload", "/" + strings.TrimPrefix(p.Form, "/")
}
