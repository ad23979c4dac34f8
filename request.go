package idempo

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"hash"
	"strings"
	"sync"
	"time"

	"github.com/idempo/idempo/internal/fingerprint"
)

// Request is one arrival of an intent. Nothing in it is changed, or kept beyond the call's claim.
type Request struct {
	Key       Key
	Principal string // part of the identity where set: principals of one tenant then never share a key
	// Input is what the request says, as fields: the same key with other input is refused. Ignored with DigestFunc.
	Input [][]byte
	// DigestFunc computes the fingerprint by a recipe, Recipe for new records, or the one a record was made by. It
	// returns an error for a recipe or digest key it does not know. Use Engine.FingerprintMAC inside it.
	DigestFunc func(recipe string) ([]byte, error)
	Recipe     string // of DigestFunc; at most 2 KiB
	Detail     []byte // member digests kept with the record; at most 2 KiB
	// Unique are business identities that this intent occupies besides its key ("transaction 7"): another key that
	// names one of them is told that it is done already.
	Unique   []string
	Wait     time.Duration // how long a duplicate waits for the running one; 0: Config.Wait
	Snapshot []byte        // input kept for probes and tasks
	Surface  string        // http grpc inbox webhook saga run task client mcp
	Trace    string        // trace context
}

// recipeInput names the fingerprint over Request.Input, recipeSQL the plain one that SQL callers share.
const (
	recipeInput = "input1;k="
	recipeSQL   = "sql1"
)

// FingerprintMAC returns a constructor of HMAC-SHA-256 under the fingerprint subkey of the tenant and the digest key
// keyID ("" is the newest), and that key's id. Code record_unreadable: the key is not configured. The MACs are fresh
// and belong to the caller.
func (e *Engine) FingerprintMAC(tenant, keyID string) (newMAC func() hash.Hash, id string, err error) {
	pool, id, err := e.ring.request(tenant, keyID)
	if err != nil {
		return nil, "", err
	}
	return func() hash.Hash { return pool.New().(*mac).Hash }, id, nil
}

// FingerprintMACs is FingerprintMAC for a path that is often taken: its pool gives hash.Hash values, to be Reset before
// use and put back after it.
func (e *Engine) FingerprintMACs(tenant, keyID string) (macs *sync.Pool, id string, err error) {
	return e.ring.request(tenant, keyID)
}

// DefaultWait is how long a duplicate waits whose request says nothing of it.
func (e *Engine) DefaultWait() time.Duration { return e.cfg.Wait }

// fingerprint computes the hash of req under recipe ("" is the one for new records).
func (c *call) fingerprint(recipe string) (sum []byte, used string, err error) {
	switch {
	case c.op.SQL:
		s := sha256.Sum256(c.req.Input[0])
		sum, used = s[:], recipeSQL
	case c.req.DigestFunc != nil:
		if used = recipe; recipe == "" {
			used = c.req.Recipe
		}
		sum, err = c.req.DigestFunc(used)
	default:
		keyID, known := strings.CutPrefix(recipe, recipeInput)
		if recipe != "" && !known {
			return nil, "", c.fail("record_unreadable", "the record's fingerprint recipe is not known here")
		}
		pool, id, err := c.e.ring.request(c.key.Tenant, keyID)
		if err != nil {
			return nil, "", err
		}
		m := pool.Get().(*mac)
		m.in = fingerprint.Append(fingerprint.Append(m.in[:0], c.key.Operation), c.req.Input...)
		sum = m.sum()
		if recipe == "" {
			sum = c.sum[:copy(c.sum[:], sum)]
		} else {
			sum = bytes.Clone(sum)
		}
		if cap(m.in) > 64<<10 {
			m.in = nil // one big request must not stay in the pool
		}
		pool.Put(m)
		return sum, c.e.ring.recipes[id], nil
	}
	if err != nil {
		return nil, "", &Error{Op: "begin", Code: "record_unreadable", KeyRef: c.ref(), Err: err}
	}
	if recipe != "" && used != recipe {
		return nil, "", c.fail("record_unreadable", "the record's fingerprint recipe is not known here")
	}
	return sum, used, nil
}

// matches reports whether the request is the one that hash, made by recipe, stands for. Every comparison of the engine
// goes through here or AcquireParams.Judge.
func (c *call) matches(hash []byte, recipe string) (bool, error) {
	own := c.p.Hash
	if recipe != c.p.Recipe {
		var err error
		if own, _, err = c.fingerprint(recipe); err != nil {
			return false, err
		}
	}
	return subtle.ConstantTimeCompare(own, hash) == 1, nil
}

// newToken returns 128 random bits.
func newToken() (t Token) {
	_, _ = rand.Read(t[:]) // never fails since Go 1.24
	return t
}

// DeriveKey returns a downstream idempotency key, UUID text, made of SHA-256 over the fields `idempo-derive-1` and
// fields, each led by its length as four bytes big-endian. Operations, sagas, commands and clients pass tenant, name,
// id, step path, role, generation in decimal and label (page saga, rule 5). It is the same on every attempt, process
// and release, and holds no secret.
func DeriveKey(fields ...string) string { return fingerprint.Derive(fields...) }
