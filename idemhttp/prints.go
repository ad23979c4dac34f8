package idemhttp

import (
	"hash"
	"net/http"
	"sync/atomic"

	"github.com/idempo/idempo"
)

// fingerprinter makes the fingerprints of one route. It is safe for concurrent use.
type fingerprinter struct {
	engine *idempo.Engine
	sel    selection
	detail bool
	newest atomic.Pointer[namedRecipe]
}

// namedRecipe is the text of the recipe under a digest key.
type namedRecipe struct{ keyID, text string }

// print is what one request says, as the record keeps it.
type print struct {
	sum, detail []byte
	recipe      string
}

func newFingerprinter(engine *idempo.Engine, r Rules) (*fingerprinter, error) {
	sel, err := newSelection(r)
	if err != nil {
		return nil, err
	}
	return &fingerprinter{engine: engine, sel: sel, detail: r.MismatchDetail != DetailNone}, nil
}

// print is the fingerprint under the newest digest key. Errors are a *refusal for a body that is too large, the engine's, and
// failures to read a spooled body.
func (f *fingerprinter) print(r *http.Request, body *payload, tenant string) (print, error) {
	macs, keyID, err := f.engine.FingerprintMACs(tenant, "")
	if err != nil {
		return print{}, err
	}
	mac := macs.Get().(hash.Hash)
	defer macs.Put(mac)
	mac.Reset()
	sum, detail, err := f.sel.fingerprint(func() hash.Hash { return mac }, parts{r, body}, f.detail)
	if err != nil {
		return print{}, err
	}
	return print{sum: sum, detail: detail, recipe: f.recipe(keyID)}, nil
}

func (f *fingerprinter) recipe(keyID string) string {
	if n := f.newest.Load(); n != nil && n.keyID == keyID {
		return n.text
	}
	n := &namedRecipe{keyID, recipe(keyID, &f.sel)}
	f.newest.Store(n)
	return n.text
}

// by is the fingerprint as a record's own recipe makes it: its selection, its digest key. An error means that this binary does
// not know the recipe, and so cannot say whether the requests are the same.
func (f *fingerprinter) by(recipe string, r *http.Request, body *payload, tenant string) ([]byte, error) {
	keyID, text, err := splitRecipe(recipe)
	if err != nil {
		return nil, err
	}
	sel, err := f.selected(text)
	if err != nil {
		return nil, err
	}
	mac, _, err := f.engine.FingerprintMAC(tenant, keyID)
	if err != nil {
		return nil, err
	}
	sum, _, err := sel.fingerprint(mac, parts{r, body}, false)
	return sum, err
}

func (f *fingerprinter) selected(text string) (*selection, error) {
	if text == f.sel.encode() {
		return &f.sel, nil
	}
	sel, err := decodeSelection(text)
	return &sel, err
}

// mismatch names what differs between a request and the one that a record stands for, nil where the record does not tell.
func (f *fingerprinter) mismatch(rec idempo.Record, r *http.Request, body *payload, tenant string) *Mismatch {
	keyID, text, err := splitRecipe(rec.Recipe)
	if err != nil || len(rec.Detail) == 0 {
		return nil
	}
	sel, err := f.selected(text)
	if err != nil {
		return nil
	}
	mac, _, err := f.engine.FingerprintMAC(tenant, keyID)
	if err != nil {
		return nil
	}
	found, err := sel.diff(mac, parts{r, body}, rec.Detail)
	if err != nil || found == nil || found.Parts == nil {
		return nil
	}
	return found
}
