package cli

import (
	"slices"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
)

// listed is a record in a list, as JSON.
type listed struct {
	Schema     int        `json:"schema"`
	KeyRef     string     `json:"key_ref"`
	Tenant     string     `json:"tenant"`
	Operation  string     `json:"operation"`
	State      string     `json:"state"`
	Guard      string     `json:"guard"`
	OnCrash    string     `json:"on_crash"`
	Surface    string     `json:"surface,omitempty"`
	Attempt    int64      `json:"attempt"`
	Generation int64      `json:"generation"`
	Owner      string     `json:"owner,omitempty"`
	Result     *jsonState `json:"result,omitempty"`
	Resource   *jsonRef   `json:"resource,omitempty"`
	CreatedAt  *time.Time `json:"created_at"`
	ChangedAt  *time.Time `json:"changed_at"`
	LeaseUntil *time.Time `json:"lease_until,omitempty"`
	ExpiresAt  *time.Time `json:"expires_at,omitempty"`
	GoneAt     *time.Time `json:"gone_at,omitempty"`
}

type jsonState struct {
	Status   int    `json:"status"`
	Failing  bool   `json:"failing"`
	BodySize int64  `json:"body_size"`
	BodyKept bool   `json:"body_kept"`
	Sealed   string `json:"sealed,omitempty"` // id of the encryption key; without it the answer is stored in clear
}

type jsonRef struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

// shownKey is a record with its history, as JSON.
type shownKey struct {
	listed
	Fingerprint string        `json:"fingerprint,omitempty"`
	References  []jsonRef     `json:"references,omitempty"`
	Note        string        `json:"note,omitempty"`
	Trace       string        `json:"trace,omitempty"`
	Attempts    []jsonAttempt `json:"attempts"`
	Held        *jsonHeld     `json:"held,omitempty"`
	Audit       []jsonEntry   `json:"audit"`
	Next        []jsonNext    `json:"next"`
}

// jsonHeld is an open transaction that runs the key: what it does is not committed.
type jsonHeld struct {
	Session     string     `json:"session"`
	Application string     `json:"application"`
	Since       *time.Time `json:"since,omitempty"`
}

// jsonNext is something that can become of a key: by itself, or by a command.
type jsonNext struct {
	Text    string `json:"text"`
	Action  string `json:"action,omitempty"`
	Command string `json:"command,omitempty"`
}

type jsonAttempt struct {
	Attempt     int64      `json:"attempt"`
	Generation  int64      `json:"generation"`
	State       string     `json:"state"`
	Owner       string     `json:"owner,omitempty"`
	ClaimedAt   *time.Time `json:"claimed_at,omitempty"`
	StartedAt   *time.Time `json:"started_at,omitempty"`
	LeaseUntil  *time.Time `json:"lease_until,omitempty"`
	CompletedAt *time.Time `json:"completed_at,omitempty"`
	Note        string     `json:"note,omitempty"`
}

func listedOf(r idempo.Record) listed {
	l := listed{Schema: 1, KeyRef: r.Ref(), Tenant: r.Key.Tenant, Operation: r.Key.Operation, State: string(r.State), Guard: string(r.Guard),
		OnCrash: string(r.OnCrash), Surface: r.Surface, Attempt: r.Attempt, Generation: r.Generation, Owner: r.Owner,
		CreatedAt: jsonTime(r.CreatedAt), ChangedAt: jsonTime(r.ChangedAt), GoneAt: jsonTime(r.GoneAt), ExpiresAt: jsonTime(r.ExpiresAt)}
	if r.State == idempo.StatePending {
		l.LeaseUntil = jsonTime(r.LeaseUntil)
	}
	if r.State == idempo.StateCompleted || r.State == idempo.StateExpired {
		l.Result = &jsonState{r.Result.Status, r.Result.Failing, r.BodySize, r.BodyKept, r.Sealed}
	}
	if !r.Result.Resource.IsZero() {
		l.Resource = &jsonRef{r.Result.Resource.Type, r.Result.Resource.ID}
	}
	return l
}

func shownOf(shown operator.Shown) shownKey {
	r, earlier := shown.Record, shown.Attempts
	s := shownKey{listed: listedOf(r), Fingerprint: r.Recipe, Note: r.Note, Trace: r.Trace, Attempts: []jsonAttempt{}, Audit: []jsonEntry{}, Next: []jsonNext{}}
	for _, ref := range r.References {
		s.References = append(s.References, jsonRef{ref.Type, ref.ID})
	}
	if r.Attempt > 0 && !slices.ContainsFunc(earlier, func(e idempo.Record) bool { return e.Attempt == r.Attempt }) {
		earlier = append(earlier[:len(earlier):len(earlier)], r)
	}
	for _, e := range earlier {
		s.Attempts = append(s.Attempts, jsonAttempt{e.Attempt, e.Generation, string(e.State), e.Owner, jsonTime(e.ClaimedAt), jsonTime(e.StartedAt),
			jsonTime(e.LeaseUntil), jsonTime(e.CompletedAt), e.Note})
	}
	if h := shown.Held; !h.IsZero() {
		s.Held = &jsonHeld{h.Session, h.Application, jsonTime(h.Since)}
	}
	for _, e := range shown.Audit {
		s.Audit = append(s.Audit, entryOf(e))
	}
	for _, n := range shown.Next {
		s.Next = append(s.Next, jsonNext{n.Text, string(n.Action), n.Command})
	}
	return s
}
