package idemhttp

// refusal is a request that is answered without running its handler: a code of the problem table and one sentence for the
// caller. Neither ever holds a key, a payload or a secret.
type refusal struct {
	code   string
	detail string
}

func (r *refusal) Error() string { return r.code + ": " + r.detail }

func refuse(code, detail string) error { return &refusal{code: code, detail: detail} }
