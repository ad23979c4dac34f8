package inbox

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/idempo/idempo"
)

// sealing is the Store of an inbox: bodies and headers are encrypted on their way to the store under it and opened on their
// way back, by the engine's keys, as results are. Id, source, type, lane, version and position stay in clear: they are found
// and ordered by. What was stored before encryption was on is read as it is.
type sealing struct {
	Store
	engine *idempo.Engine
}

// Over returns the receipts of the engine's store as an Inbox sees them: what is encrypted is opened. False: e is nil, or
// its store keeps none.
func Over(e *idempo.Engine) (Store, bool) {
	if e == nil {
		return nil, false
	}
	o, ok := e.Store().(Opener)
	if !ok {
		return nil, false
	}
	return sealing{o.Inbox(), e}, true
}

// place is what a receipt's ciphertext is bound to.
func place(r *Receipt) idempo.Key {
	return idempo.Key{Tenant: r.Message.Tenant, Operation: "receipt:" + r.Subscriber, ID: r.Key}
}

// seal encrypts body and headers of r. What r shares with the caller stays as it is.
func (s sealing) seal(r *Receipt) error {
	var raw [][2][]byte
	for _, h := range r.Message.Headers {
		raw = append(raw, [2][]byte{[]byte(h[0]), []byte(h[1])})
	}
	headers, err := json.Marshal(raw)
	if err != nil {
		return err
	}
	id, box, err := s.engine.Seal(place(r), "receipt headers", headers)
	if err != nil || id == "" {
		return err
	}
	r.Sealed = id
	if len(r.Message.Headers) > 0 {
		r.Message.Headers = [][2]string{{"", string(box)}}
	}
	if r.Message.Body != nil {
		_, r.Message.Body, err = s.engine.Seal(place(r), "receipt body", r.Message.Body)
	}
	return err
}

// open decrypts body and headers of r. What cannot be opened leaves as Unreadable, without them.
func (s sealing) open(r *Receipt) {
	if r == nil || r.Sealed == "" {
		return
	}
	headers, body := r.Message.Headers, r.Message.Body
	r.Message.Headers, r.Message.Body = nil, nil
	if len(headers) > 0 {
		plain, err := s.engine.Unseal(place(r), "receipt headers", r.Sealed, []byte(headers[0][1]))
		var raw [][2][]byte
		if err == nil {
			err = json.NewDecoder(bytes.NewReader(plain)).Decode(&raw)
		}
		if err != nil {
			r.Unreadable = err
			return
		}
		for _, h := range raw {
			r.Message.Headers = append(r.Message.Headers, [2]string{string(h[0]), string(h[1])})
		}
	}
	if body != nil {
		var err error
		if r.Message.Body, err = s.engine.Unseal(place(r), "receipt body", r.Sealed, body); err != nil {
			r.Message.Headers, r.Message.Body, r.Unreadable = nil, nil, err
		}
	}
}

// Foresee implements Foreseer, where the store does.
func (s sealing) Foresee(ctx context.Context, ps []EnterParams) error {
	if f, ok := s.Store.(Foreseer); ok {
		return f.Foresee(ctx, ps)
	}
	return nil
}

// Enter implements Store.
func (s sealing) Enter(ctx context.Context, p EnterParams) (Entered, error) {
	e, err := s.Store.Enter(ctx, p)
	s.open(e.Receipt)
	return e, err
}

// Put implements Store. The message of a receipt never changes: only a new one is encrypted.
func (s sealing) Put(ctx context.Context, p PutParams) (Stored, error) {
	if p.Rev == 0 {
		if err := s.seal(&p.Receipt); err != nil {
			return Stored{}, err
		}
	}
	st, err := s.Store.Put(ctx, p)
	s.open(&st.Receipt)
	return st, err
}

// Take implements Store.
func (s sealing) Take(ctx context.Context, p TakeParams) ([]Receipt, error) {
	return s.all(s.Store.Take(ctx, p))
}

// List implements Store.
func (s sealing) List(ctx context.Context, p ListParams) ([]Receipt, error) {
	return s.all(s.Store.List(ctx, p))
}

func (s sealing) all(rs []Receipt, err error) ([]Receipt, error) {
	for i := range rs {
		s.open(&rs[i])
	}
	return rs, err
}
