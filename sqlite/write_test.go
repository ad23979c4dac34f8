package sqlite

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/idempo/idempo"
)

// waiting returns how many stand in the line.
func (q *queue) waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.line)
}

// until spins, giving way, until ok: the goroutines it waits for need no time but their turn.
func until(t *testing.T, ok func() bool) {
	t.Helper()
	for !ok() {
		if t.Context().Err() != nil {
			t.Fatal("never came")
		}
		yield()
	}
}

// blocked makes f hold every query that is stop until the returned function is called.
func blocked(f *fake, stop string) (reached <-chan struct{}, release func()) {
	at, gate := make(chan struct{}, 100), make(chan struct{})
	f.on = func(q string) error {
		if q == stop {
			at <- struct{}{}
			<-gate
		}
		return nil
	}
	return at, sync.OnceFunc(func() { close(gate) })
}

func TestSharedCommit(t *testing.T) {
	t.Parallel()
	k := idempo.Key{Tenant: "t", Operation: "o", ID: "i"}
	t.Run("[stores/SQ3] [http/P24] works that wait during a commit share the next one", func(t *testing.T) {
		t.Parallel()
		f := &fake{}
		reached, release := blocked(f, "COMMIT")
		defer release()
		s := storeOn(t, f)
		var wg sync.WaitGroup
		var mu sync.Mutex
		answered := 0
		one := func() {
			wg.Go(func() {
				if err := s.share(t.Context(), "x", k, nil, (*session).several); err != nil {
					t.Error(err)
				}
				mu.Lock()
				answered++
				mu.Unlock()
			})
		}
		one()
		<-reached // the first is in its COMMIT
		for range 64 {
			one()
		}
		until(t, func() bool { return s.line.waiting() == 64 })
		mu.Lock()
		if answered != 0 {
			t.Errorf("%d were answered before their commit", answered)
		}
		mu.Unlock()
		release()
		wg.Wait()
		if n := f.count("COMMIT"); n != 2 {
			t.Errorf("65 works took %d commits, want 2", n)
		}
		if n := f.count("SAVEPOINT work"); n != 63 {
			t.Errorf("%d savepoints, want one for each but the first", n)
		}
	})
	t.Run("[stores/SQ3] one that fails fails alone", func(t *testing.T) {
		t.Parallel()
		f := &fake{}
		reached, release := blocked(f, "COMMIT")
		defer release()
		s := storeOn(t, f)
		boom := errors.New("boom")
		errs := make([]error, 6)
		var wg sync.WaitGroup
		start := func(i int, err error) {
			wg.Go(func() {
				errs[i] = s.share(t.Context(), "x", k, nil, func(x *session) error { // writes twice
					_ = x.several()
					_, _ = x.exec("touch")
					return err
				})
			})
		}
		start(0, nil)
		<-reached
		for i := 1; i < 6; i++ {
			at := s.line.waiting()
			start(i, map[int]error{1: boom, 3: boom}[i])
			until(t, func() bool { return s.line.waiting() == at+1 })
		}
		release()
		wg.Wait()
		for i, err := range errs {
			if want := i == 1 || i == 3; want != errors.Is(err, boom) || !want && err != nil {
				t.Errorf("work %d: %v", i, err)
			}
		}
		if f.count("ROLLBACK") != 1 || f.count("ROLLBACK TO work") != 1 { // the first of a batch has no savepoint
			t.Errorf("sent %q", f.sent)
		}
	})
	t.Run("[stores/SQ3] one statement that fails needs no savepoint; SQLite's rollback of everything is noticed", func(t *testing.T) {
		t.Parallel()
		for _, gone := range []bool{false, true} {
			f := &fake{}
			reached, release := blocked(f, "COMMIT")
			s := storeOn(t, f)
			var wg sync.WaitGroup
			errs := make([]error, 4)
			start := func(i int) {
				at := s.line.waiting()
				wg.Go(func() {
					errs[i] = s.share(t.Context(), "x", k, nil, func(x *session) error {
						if i != 2 {
							return nil
						}
						_, _ = x.exec("touch")
						return coded(codeFull)
					})
				})
				if i > 0 {
					until(t, func() bool { return s.line.waiting() == at+1 })
				}
			}
			start(0)
			<-reached
			for i := 1; i < 4; i++ {
				start(i)
			}
			held := f.on
			f.mu.Lock()
			f.on = func(q string) error {
				if q == "BEGIN" && !gone {
					return coded(codeError)
				}
				return held(q)
			}
			f.mu.Unlock()
			release()
			wg.Wait()
			for i, err := range errs {
				if fails := i == 2 || gone && i > 0; fails != errors.Is(err, idempo.ErrUnavailable) && i != 2 || i == 2 && err == nil {
					t.Errorf("gone %t, work %d: %v", gone, i, err)
				}
			}
			if f.count("SAVEPOINT work") != 0 {
				t.Errorf("sent %q", f.sent)
			}
		}
	})
	t.Run("[stores/SQ3] a commit that fails fails all of it, and nobody before", func(t *testing.T) {
		t.Parallel()
		f := &fake{on: func(q string) error {
			if q == "COMMIT" {
				return coded(codeFull)
			}
			return nil
		}}
		s := storeOn(t, f)
		err := s.share(t.Context(), "renew", k, nil, func(*session) error { return nil })
		e, ok := errors.AsType[*idempo.Error](err)
		if !ok || e.Code != "unavailable" || e.Unknown {
			t.Errorf("%v", err)
		}
		f.on = func(q string) error {
			if q == "COMMIT" {
				return coded(codeIO | 4<<8)
			}
			return nil
		}
		err = s.share(t.Context(), "renew", k, nil, func(*session) error { return nil })
		if e, ok := errors.AsType[*idempo.Error](err); !ok || !e.Unknown {
			t.Errorf("a sync that failed leaves the outcome open: %v", err)
		}
	})
	t.Run("[stores/SQ4] COMMIT answers BUSY: COMMIT again, not the work", func(t *testing.T) {
		t.Parallel()
		for _, commit := range []string{"COMMIT", "COMMIT; BEGIN"} {
			left, runs := 3, 0
			f := &fake{}
			f.on = func(q string) error {
				if q == commit && left > 0 {
					left--
					return coded(codeBusy)
				}
				if q == "BEGIN" {
					return coded(codeError) // inside a transaction there is no second
				}
				return nil
			}
			s := storeOn(t, f)
			var err error
			if commit == "COMMIT" {
				err = s.share(t.Context(), "x", k, nil, func(*session) error { runs++; return nil })
			} else {
				err = s.InTx(t.Context(), func(ctx context.Context) error {
					runs++
					_, err := Tx(ctx).ExecContext(ctx, "INSERT")
					return err
				})
			}
			if err != nil || runs != 1 || f.count(commit) != 4 || f.count("ROLLBACK") != 0 {
				t.Errorf("%v, work ran %d times, sent %q", err, runs, f.sent)
			}
		}
	})
	t.Run("a caller that leaves the line is not reached", func(t *testing.T) {
		t.Parallel()
		f := &fake{}
		reached, release := blocked(f, "COMMIT")
		defer release()
		s := storeOn(t, f)
		var wg sync.WaitGroup
		wg.Go(func() { _ = s.share(t.Context(), "x", k, nil, func(*session) error { return nil }) })
		<-reached
		ctx, cancel := context.WithCancel(t.Context())
		ran := false
		var left error
		wg.Go(func() { left = s.share(ctx, "x", k, nil, func(*session) error { ran = true; return nil }) })
		until(t, func() bool { return s.line.waiting() == 1 })
		cancel()
		until(t, func() bool { return s.line.waiting() == 0 })
		release()
		wg.Wait()
		if e, ok := errors.AsType[*idempo.Error](left); ran || !ok || e.Code != "unavailable" || e.Unknown {
			t.Errorf("ran %t, %v", ran, left)
		}
	})
	t.Run("a caller that leaves during the commit of others hears that it is not known", func(t *testing.T) {
		t.Parallel()
		f := &fake{}
		at, permit := make(chan struct{}, 2), make(chan struct{})
		f.on = func(q string) error {
			if q == "COMMIT" {
				at <- struct{}{}
				<-permit
			}
			return nil
		}
		s := storeOn(t, f)
		go func() { _ = s.share(t.Context(), "x", k, nil, func(*session) error { return nil }) }()
		<-at
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error, 1)
		go func() { got <- s.share(ctx, "x", k, nil, func(*session) error { return nil }) }()
		until(t, func() bool { return s.line.waiting() == 1 })
		permit <- struct{}{}
		<-at // its own commit
		cancel()
		if e, ok := errors.AsType[*idempo.Error](<-got); !ok || !e.Unknown {
			t.Error(e)
		}
		permit <- struct{}{}
	})
}

func TestGuard(t *testing.T) {
	t.Parallel()
	t.Run("[stores/E12] words that end a transaction are told from others", func(t *testing.T) {
		t.Parallel()
		for _, q := range []string{"COMMIT", " commit;", "END", "end transaction", "ROLLBACK", "-- x\nROLLBACK", "/* a */ /* b */ ; commit", "ROLLBACK TRANSACTION"} {
			if !endsTransaction(q) {
				t.Errorf("%q was let through", q)
			}
		}
		for _, q := range []string{"", "SELECT 'COMMIT'", "ROLLBACK TO x", "rollback transaction to savepoint x", "SAVEPOINT a", "RELEASE a", "--", "/*"} {
			if endsTransaction(q) {
				t.Errorf("%q was refused", q)
			}
		}
	})
	t.Run("[stores/E12] after SQLite rolled back, nothing more is written", func(t *testing.T) {
		t.Parallel()
		gone := false
		f := &fake{}
		f.on = func(q string) error {
			switch q {
			case "fails":
				gone = true
				return coded(codeFull)
			case "BEGIN":
				if !gone {
					return coded(codeError)
				}
			}
			return nil
		}
		s := storeOn(t, f)
		err := s.InTx(t.Context(), func(ctx context.Context) error {
			_, _ = Tx(ctx).ExecContext(ctx, "fails")
			_, _ = Tx(ctx).ExecContext(ctx, "stray write")
			return nil
		})
		if e, ok := errors.AsType[*idempo.Error](err); !ok || e.Code != "tx_aborted" || f.count("stray write") != 0 || f.count("COMMIT; BEGIN") != 0 {
			t.Errorf("%v, sent %q", err, f.sent)
		}
	})
	t.Run("[stores/E12] the work's Commit does not commit", func(t *testing.T) {
		t.Parallel()
		for name, end := range map[string]func(context.Context) error{
			"Commit":    func(ctx context.Context) error { return Tx(ctx).Commit() },
			"Rollback":  func(ctx context.Context) error { return Tx(ctx).Rollback() },
			"statement": func(ctx context.Context) error { _, err := Tx(ctx).ExecContext(ctx, "COMMIT"); return err },
		} {
			f := &fake{}
			s := storeOn(t, f)
			err := s.InTx(t.Context(), func(ctx context.Context) error { _ = end(ctx); return nil })
			if e, ok := errors.AsType[*idempo.Error](err); !ok || e.Code != "tx_ended" || f.count("driver commit")+f.count("COMMIT")+f.count("COMMIT; BEGIN") != 0 {
				t.Errorf("%s: %v, sent %q", name, err, f.sent)
			}
		}
	})
}

func TestTxThatCannotBegin(t *testing.T) {
	t.Parallel()
	f := &fake{on: func(q string) error {
		if q == "driver begin" {
			return coded(codeBusy)
		}
		return nil
	}}
	s := storeOn(t, f)
	err := s.InTx(t.Context(), func(ctx context.Context) error {
		tx := Tx(ctx)
		if tx == nil {
			t.Fatal("nil")
		}
		_, err := tx.ExecContext(ctx, "INSERT")
		if !errors.Is(err, idempo.ErrUnavailable) {
			t.Errorf("exec: %v", err)
		}
		if rows, err := tx.QueryContext(ctx, "SELECT 1"); err == nil {
			_ = rows.Close()
			t.Error("a query worked")
		}
		if err := tx.QueryRowContext(ctx, "SELECT 1").Scan(new(int)); !errors.Is(err, idempo.ErrUnavailable) {
			t.Errorf("query row: %v", err)
		}
		return nil // the error swallowed
	})
	if !errors.Is(err, idempo.ErrUnavailable) || idempo.MayHaveHappened(err) {
		t.Errorf("[stores/SQ4] %v", err)
	}
	var late context.Context
	f.on = func(q string) error {
		if q == "BEGIN" {
			return coded(codeError)
		}
		return nil
	}
	if err := s.InTx(t.Context(), func(ctx context.Context) error { late = ctx; return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := Tx(late).ExecContext(t.Context(), "stray"); err == nil || f.count("stray") != 0 {
		t.Errorf("[stores/E12] a transaction used after the work returned: %v", err)
	}
}
