package config

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/idempo/idempo/webhook"
)

// Webhooks says what is received, and where.
type Webhooks struct {
	Path   string
	Config webhook.Config // without the engine
}

// decodeWebhooks makes sources and profiles of what the file says.
func decodeWebhooks(root *value, o outside) Webhooks {
	v := root.at("webhooks")
	w := Webhooks{Path: v.at("path").text, Config: webhook.Config{
		Workers: int(v.at("workers").num), MaxInFlight: int(v.at("max_in_flight").num), MaxBuffered: v.at("max_buffered").num,
		ReadTimeout: v.at("read_timeout").duration(), AnswerBudget: v.at("answer_budget").duration(),
	}}
	for _, s := range v.at("sources").members {
		w.Config.Sources = append(w.Config.Sources, decodeSource(s, o))
	}
	for _, p := range v.at("providers").members {
		w.Config.Providers = append(w.Config.Providers, decodeProvider(p))
	}
	return w
}

// hookSecret reads a secret again where it stands in a file of its own.
func hookSecret(id string, v *value, o outside) webhook.Secret {
	if len(v.sources) == 1 {
		if name, ok := strings.CutPrefix(v.sources[0], "file "); ok {
			return webhook.FromFile(id, o.path(name))
		}
	}
	origin, held := v.path, v.text
	if len(v.sources) > 0 {
		origin = strings.Join(v.sources, ", ")
	}
	return webhook.FromFunc(id, origin, func() (string, error) { return held, nil })
}

func decodeSecrets(list *value, o outside) (out []webhook.Secret) {
	for _, m := range list.members {
		s := hookSecret(m.at("id").text, m.at("value"), o)
		if until := m.at("until"); until.set {
			at, _ := time.Parse(time.RFC3339, until.text) // checked by the schema
			s = s.Until(at)
		}
		out = append(out, s)
	}
	return out
}

func texts(list *value) (out []string) {
	for _, m := range list.members {
		out = append(out, m.text)
	}
	return out
}

func decodeSource(v *value, o outside) webhook.Source {
	ifSet := func(m *value) time.Duration {
		if m.set {
			return m.duration()
		}
		return 0
	}
	order, retry := v.at("order"), v.at("retry")
	s := webhook.Source{
		Name: v.name, Provider: v.at("provider").text, Tenant: v.at("tenant").text, Secrets: decodeSecrets(v.at("secrets"), o),
		PublicURL: v.at("public_url").text, Topics: texts(v.at("topics")), Types: texts(v.at("types")), MinVersion: v.at("min_version").text,
		Tolerance: ifSet(v.at("tolerance")), MissingID: v.at("missing_id").text, MaxItems: int(v.at("max_items").num), Retention: ifSet(v.at("retention")),
		AllowShortWindow: v.at("allow_short_window").isTrue(), RefuseStatus: int(v.at("refuse_status").num),
		Order: webhook.Order{OnDead: order.at("on_dead").text},
		Retry: webhook.Retry{Attempts: int(retry.at("attempts").num), First: retry.at("first").duration(), Max: retry.at("max").duration(),
			MaxAge: retry.at("max_age").duration()},
		BodyRetention: v.at("body_retention").duration(), Hold: v.at("forward").text == "none",
		Forward: decodeForward(v.at("forward"), o),
	}
	if mode := order.at("mode"); mode.set { // without it lanes are serial where the provider has them
		s.Order.Mode = mode.text
	}
	if same := v.at("same_bytes"); same.set {
		s.Profile.SameBytes = same.text
	}
	if size := v.at("max_body"); size.set {
		s.MaxBody = size.num
	}
	if token := v.at("verify_token"); token.set {
		secret := hookSecret("verify_token", token, o)
		s.VerifyToken = &secret
	}
	return s
}

func decodeForward(v *value, o outside) *webhook.Forward {
	if v.text == "none" {
		return nil
	}
	f := &webhook.Forward{Breaker: int(v.at("breaker").num), BreakerPause: v.at("breaker_pause").duration(), URL: v.at("url").text, Timeout: v.at("timeout").duration(), Concurrency: int(v.at("concurrency").num), Signing: decodeSecrets(v.at("signing"), o)}
	if dedups := v.at("target_dedups"); dedups.set {
		yes := dedups.isTrue()
		f.TargetDedups = &yes
	}
	for _, m := range v.at("allow").members {
		prefix, err := netip.ParsePrefix(m.text)
		if err != nil {
			addr, _ := netip.ParseAddr(m.text) // checked by the schema
			prefix = netip.PrefixFrom(addr, addr.BitLen())
		}
		f.Allow = append(f.Allow, prefix)
	}
	for _, m := range v.at("ports").members {
		f.Ports = append(f.Ports, int(m.num))
	}
	if !v.set {
		return nil
	}
	return f
}

func decodePart(v *value) webhook.Part {
	return webhook.Part{Header: v.at("header").text, JSON: v.at("json").text, Form: v.at("form").text}
}

func decodeProvider(v *value) webhook.Profile {
	list, at, success := v.at("list"), v.at("time"), v.at("success")
	shape := webhook.Shape{Mask: texts(v.at("mask"))}
	id := webhook.ID{Signed: v.at("id_signed").isTrue()}
	for _, m := range v.at("id").members {
		id.Parts = append(id.Parts, decodePart(m))
	}
	if len(id.Parts) > 0 {
		shape.IDs = []webhook.ID{id}
	}
	lane, version, kind := decodePart(v.at("lane")), decodePart(v.at("version")), decodePart(v.at("type"))
	if lane != (webhook.Part{}) {
		shape.Tracks = []webhook.Track{{Lane: []webhook.Part{lane}, Version: version}}
	}
	if kind != (webhook.Part{}) {
		shape.Type = []webhook.Part{kind}
	}
	p := webhook.Profile{
		Name: v.name, Header: v.at("header").text, Prefix: v.at("prefix").text, Alg: webhook.Alg(v.at("alg").text), Encoding: webhook.Encoding(v.at("encoding").text),
		SecretForm: webhook.Form(v.at("secret").text), Content: v.at("content").text, BodyUnsigned: v.at("body_unsigned").isTrue(),
		List:    webhook.List{Separator: list.at("separator").text, Tag: list.at("tag").text, Time: list.at("time").text},
		Time:    webhook.Time{Header: at.at("header").text, JSON: at.at("json").text, Unit: webhook.Unit(at.at("unit").text), Class: webhook.TimePerAttempt},
		Success: webhook.Answer{Status: int(success.at("status").num), Body: success.at("body").text, ContentType: success.at("content_type").text},
	}
	if tolerance := at.at("tolerance"); tolerance.set {
		p.Time.Tolerance = tolerance.duration()
	}
	if list.set {
		p.Family = webhook.FamilyList
	}
	if items := v.at("items"); items.set {
		p.Items = []webhook.Items{{At: items.text, Shape: shape}}
	} else {
		p.Shape = shape
	}
	return p
}

// combineWebhooks has the package that receives judge every source, and puts each fault at its place in the file.
func (r *reader) combineWebhooks(root *value) {
	hooks := root.at("webhooks")
	if !hooks.set {
		return
	}
	if slices.ContainsFunc(hooks.at("providers").members, r.suspect) {
		return
	}
	w := decodeWebhooks(root, r.outside)
	for i, s := range hooks.at("sources").members {
		if r.suspect(s) {
			continue
		}
		r.warnLiteral(s.at("secrets"))
		r.warnLiteral(s.at("forward").at("signing"))
		_, err := webhook.NewVerifier(w.Config.Sources[i], w.Config.Providers...)
		for _, f := range webhookFaults(err) {
			n := len(r.problems)
			r.at(faultPlace(hooks, s, f.Field), "%s; %s", f.Problem, f.Fix)
			if field, own := strings.CutPrefix(f.Field, "profile."); len(r.problems) > n && !own { // the line may be that of a place above it
				field, _, _ = strings.Cut(field, " ")
				r.problems[n].Path = join(s.path, field)
			}
		}
	}
}

// faultPlace is the line a fault speaks of: in the source, or, for what its own provider says, there.
func faultPlace(hooks, s *value, field string) *value {
	if rest, ok := strings.CutPrefix(field, "profile."); ok {
		for _, p := range hooks.at("providers").members {
			if p.name == s.at("provider").text {
				return p.nearest(rest)
			}
		}
		return s
	}
	if at := s.nearest(field); at != nil {
		return at
	}
	return s
}

func webhookFaults(err error) (out []*webhook.Fault) {
	switch e := err.(type) { //nolint:errorlint // walks a joined error part by part
	case nil:
	case *webhook.Fault:
		out = append(out, e)
	case interface{ Unwrap() []error }:
		for _, part := range e.Unwrap() {
			out = append(out, webhookFaults(part)...)
		}
	default:
		panic("config: an error of webhook that is no fault: " + err.Error())
	}
	return out
}

// warnLiteral speaks of secrets that stand in the file itself.
func (r *reader) warnLiteral(list *value) {
	for _, m := range list.members {
		if v := m.at("value"); v.set && len(v.sources) == 0 {
			r.warnings = append(r.warnings, r.problem(v.line, v.col, v.path, "secret in the file itself: {env: NAME} or {file: PATH} keeps it out of copies"))
		}
	}
}
