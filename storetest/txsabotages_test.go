package storetest

import (
	"context"
	"errors"
	"iter"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/memstore"
)

// leasedNow is p as a claim outside of any transaction.
func leasedNow(p idempo.AcquireParams) idempo.AcquireParams {
	p.Guard = idempo.GuardLeased
	return p
}

func txSabotages() []sabotage {
	return []sabotage{
		{"an atomic claim commits by itself", "error, panic, Goexit: rolled back", func(s *saboteur, _ *Subject) {
			s.acquire = func(ctx context.Context, p idempo.AcquireParams) (idempo.Acquired, error) {
				a, err := s.Store.Acquire(ctx, p)
				if a.Verdict == idempo.VerdictRun && p.Guard == idempo.GuardAtomic {
					p.Key.Tenant, p.Due = p.Key.Tenant+"-x", p.Now
					_, _ = s.Store.Acquire(context.Background(), leasedNow(p)) // beside the transaction
				}
				return a, err
			}
			s.lookup = func(ctx context.Context, p idempo.LookupParams) (idempo.Record, error) {
				r, err := s.Store.Lookup(ctx, p)
				if r.State == "" {
					p.Key.Tenant += "-x"
					return s.Store.Lookup(ctx, p)
				}
				return r, err
			}
		}},
		{"a transaction commits whatever the work says", "error, panic, Goexit: rolled back", func(s *saboteur, _ *Subject) {
			s.inTx = func(ctx context.Context, fn func(context.Context) error) error {
				ctx, tx, err := s.Begin(ctx)
				if err != nil {
					return err
				}
				return errors.Join(fn(ctx), tx.Commit())
			}
		}},
		{"a transaction commits when the work panics or leaves", "error, panic, Goexit: rolled back", func(s *saboteur, _ *Subject) {
			s.inTx = func(ctx context.Context, fn func(context.Context) error) error {
				in, tx, err := s.Begin(ctx)
				if err != nil {
					return err
				}
				defer func() { _ = tx.Commit() }()
				err = fn(in)
				if err != nil {
					tx.Rollback()
				}
				return err
			}
		}},
		{"a panic is swallowed", "error, panic, Goexit: rolled back", func(s *saboteur, _ *Subject) {
			s.inTx = func(ctx context.Context, fn func(context.Context) error) (err error) {
				defer func() {
					if v := recover(); v != nil {
						err = errors.New("the work panicked")
					}
				}()
				return s.Store.InTx(ctx, fn)
			}
		}},
		{"the work's error is swallowed", "error, panic, Goexit: rolled back", func(s *saboteur, _ *Subject) {
			s.inTx = func(ctx context.Context, fn func(context.Context) error) error {
				_ = s.Store.InTx(ctx, fn)
				return nil
			}
		}},
	}
}

func failingSabotages() []sabotage {
	return []sabotage{
		{"a failing result keeps its effects", "a failing result undoes the effects and is kept", func(s *saboteur, _ *Subject) {
			s.inTx = func(ctx context.Context, fn func(context.Context) error) error {
				in, tx, err := s.Begin(ctx)
				if err != nil {
					return err
				}
				defer tx.Rollback()
				if err := fn(in); err != nil {
					return err
				}
				return tx.Commit()
			}
		}},
		{"a failing result is undone with its effects", "a failing result undoes the effects and is kept", func(s *saboteur, _ *Subject) {
			s.inTx = func(ctx context.Context, fn func(context.Context) error) error {
				undo := errors.New("undo")
				failing := false
				s.complete = func(ctx context.Context, p idempo.CompleteParams) (idempo.Record, error) {
					failing = failing || p.Result.Failing
					return s.Store.Complete(ctx, p)
				}
				err := s.Store.InTx(ctx, func(ctx context.Context) error {
					if err := fn(ctx); err != nil || !failing {
						return err
					}
					return undo
				})
				if errors.Is(err, undo) {
					return nil
				}
				return err
			}
		}},
		{"an effect is outside of the transaction", "error, panic, Goexit: rolled back", func(_ *saboteur, sub *Subject) {
			var mu sync.Mutex
			n := map[string]int{}
			sub.Effect = func(_ context.Context, name string) error {
				mu.Lock()
				defer mu.Unlock()
				n[name]++
				return nil
			}
			sub.Count = func(_ context.Context, name string) (int, error) {
				mu.Lock()
				defer mu.Unlock()
				return n[name], nil
			}
		}},
	}
}

func openSabotages() []sabotage {
	return []sabotage{
		{"a claim waits for an open transaction", "a claim never waits for an open transaction", func(s *saboteur, _ *Subject) {
			s.params(func(p *idempo.AcquireParams) { p.Wait = time.Hour })
		}},
		{"an open transaction holds nothing", "a claim never waits for an open transaction", func(s *saboteur, _ *Subject) {
			s.answers(func(_ idempo.AcquireParams, a *idempo.Acquired) {
				if a.Verdict == idempo.VerdictInProgress {
					a.Verdict = idempo.VerdictRun
				}
			})
		}},
		{"an atomic claim needs no transaction", "an atomic claim outside a transaction, a leased one inside", func(s *saboteur, _ *Subject) {
			s.acquire = func(ctx context.Context, p idempo.AcquireParams) (idempo.Acquired, error) {
				if in, _, _ := s.Store.Joined(ctx); !in {
					p = leasedNow(p)
				}
				return s.Store.Acquire(ctx, p)
			}
		}},
		{"a leased claim may join a transaction", "an atomic claim outside a transaction, a leased one inside", func(s *saboteur, _ *Subject) {
			s.acquire = func(ctx context.Context, p idempo.AcquireParams) (idempo.Acquired, error) {
				if in, _, _ := s.Store.Joined(ctx); in {
					p.Guard = idempo.GuardAtomic
				}
				return s.Store.Acquire(ctx, p)
			}
		}},
		{"Enqueue does not join", "Enqueue joins the transaction in ctx", func(s *saboteur, _ *Subject) {
			s.acquire = func(ctx context.Context, p idempo.AcquireParams) (idempo.Acquired, error) {
				if !p.Due.IsZero() {
					ctx = context.Background()
				}
				return s.Store.Acquire(ctx, p)
			}
		}},
	}
}

func joinSabotages() []sabotage {
	return []sabotage{
		{"a leased completion does not join", "renewal, completion and release of a leased claim join", func(s *saboteur, _ *Subject) {
			s.complete = func(ctx context.Context, p idempo.CompleteParams) (idempo.Record, error) {
				if p.Won.Guard == idempo.GuardLeased {
					ctx = context.Background()
				}
				return s.Store.Complete(ctx, p)
			}
		}},
		{"a renewal does not join", "renewal, completion and release of a leased claim join", func(s *saboteur, _ *Subject) {
			s.renew = func(_ context.Context, p idempo.RenewParams) (idempo.Record, error) {
				return s.Store.Renew(context.Background(), p)
			}
		}},
		{"Joined does not know its own transactions", "Joined says whether a context carries a transaction", func(s *saboteur, _ *Subject) {
			s.joined = func(context.Context) (bool, bool, error) { return false, false, nil }
		}},
		{"Joined takes the caller's transaction for its own", "Joined says whether a context carries a transaction", func(s *saboteur, _ *Subject) {
			s.joined = func(ctx context.Context) (bool, bool, error) { in, _, err := s.Store.Joined(ctx); return in, in, err }
		}},
		{"the next key is issued before the commit", "the next key is issued by the completing commit", func(s *saboteur, _ *Subject) {
			s.completes(func(p *idempo.CompleteParams) {
				if p.Issue != nil {
					_, _ = s.Store.Acquire(context.Background(), *p.Issue)
				}
			})
		}},
		{"a transaction that its work ended is a success", "the work ends the transaction itself", func(s *saboteur, _ *Subject) {
			s.inTx = func(ctx context.Context, fn func(context.Context) error) error {
				if err := s.Store.InTx(ctx, fn); codeOf(err) != "tx_ended" {
					return err
				}
				return nil
			}
		}},
		{"a completion that was lost does not stop the commit", "one failing Complete fails all", func(s *saboteur, _ *Subject) {
			s.complete = func(ctx context.Context, p idempo.CompleteParams) (idempo.Record, error) {
				if r := s.at(p.Key, p.Now); p.Won.Token != p.Token || r.State != "" {
					return s.Store.Complete(ctx, p)
				}
				if _, err := s.Store.Lookup(ctx, idempo.LookupParams{Key: p.Key, Now: p.Now}); err != nil {
					return idempo.Record{}, err
				}
				if r, _ := s.Store.Lookup(ctx, idempo.LookupParams{Key: p.Key, Now: p.Now}); r.Token != p.Token {
					return r, nil
				}
				return s.Store.Complete(ctx, p)
			}
		}},
		{"a transaction may have two of the same effect", "a commit shows effect and record together", func(_ *saboteur, sub *Subject) {
			once := sub.Effect
			sub.Effect = func(ctx context.Context, name string) error { return errors.Join(once(ctx, name), once(ctx, name)) }
		}},
		{"the caller's own transaction is committed for it", "the caller's own transaction: the caller commits", func(_ *saboteur, sub *Subject) {
			own := sub.Own
			sub.Own = func(ctx context.Context) (context.Context, func() error, func() error, error) {
				in, commit, _, err := own(ctx)
				return in, commit, commit, err
			}
		}},
	}
}

func otherSabotages() []sabotage {
	take := func(rule, caught string, change func(s *saboteur, p *idempo.TakeParams)) sabotage {
		return sabotage{rule, caught, func(s *saboteur, sub *Subject) {
			s.take = func(ctx context.Context, p idempo.TakeParams) ([]idempo.Record, error) {
				change(s, &p)
				return s.Store.Take(ctx, p)
			}
			sub.Again = s
		}}
	}
	return []sabotage{
		take("Take leases nothing", "any number of takers", func(_ *saboteur, p *idempo.TakeParams) { p.Lease = 0 }),
		take("Take does not wait for the due time", "Take leases what is due, and no other", func(_ *saboteur, p *idempo.TakeParams) { p.Now = p.Now.Add(time.Hour) }),
		take("Take knows no limit", "Take keeps to its operations and its limit", func(_ *saboteur, p *idempo.TakeParams) { p.Limit = 1000 }),
		take("Take takes every operation's", "Take keeps to its operations and its limit", func(s *saboteur, p *idempo.TakeParams) {
			p.Operations = operations(s.All())
		}),
		{"Take hands out doubts on hold", "Take hands out what must be probed", func(s *saboteur, _ *Subject) {
			s.params(func(p *idempo.AcquireParams) { p.OnCrash = idempo.OnCrashProbe })
		}},
		{"an enqueued record counts as started", "Enqueue: pending, lapsed, not started", func(s *saboteur, _ *Subject) {
			s.answers(func(p idempo.AcquireParams, a *idempo.Acquired) {
				if !p.Due.IsZero() {
					a.Record.StartedAt = p.Now
				}
			})
		}},
		{"an enqueued record's due time is dropped", "Enqueue: pending, lapsed, not started", func(s *saboteur, _ *Subject) {
			s.params(func(p *idempo.AcquireParams) {
				if !p.Due.IsZero() {
					p.Due = p.Now
				}
			})
		}},
		{"a failure's note is lost when it is read", "random calls, memstore as the model", func(s *saboteur, _ *Subject) {
			s.reads(func(r *idempo.Record) {
				if r.State == idempo.StateFailed {
					r.Note = ""
				}
			})
		}},
		{"a taken record forgets its derived key", "random calls, memstore as the model", func(s *saboteur, _ *Subject) {
			s.take = func(ctx context.Context, p idempo.TakeParams) ([]idempo.Record, error) {
				got, err := s.Store.Take(ctx, p)
				for i := range got {
					got[i].DerivedKey = ""
				}
				return got, err
			}
		}},
		{"an absent record is an error", "absent: Lookup is a Record without state", func(s *saboteur, _ *Subject) {
			s.lookup = func(ctx context.Context, p idempo.LookupParams) (idempo.Record, error) {
				r, err := s.Store.Lookup(ctx, p)
				if r.State == "" {
					err = &idempo.Error{Op: "lookup", Code: "not_found"}
				}
				return r, err
			}
		}},
		{"two answers of one key at once", "completions with different results at once", func(s *saboteur, _ *Subject) {
			s.complete = func(ctx context.Context, p idempo.CompleteParams) (idempo.Record, error) {
				open := s.at(p.Key, p.Now).State == idempo.StatePending
				for range 100 {
					runtime.Gosched()
				}
				r, err := s.Store.Complete(ctx, p)
				if open {
					return r, nil
				}
				return r, err
			}
		}},
	}
}

func engineSabotages() []sabotage {
	return []sabotage{
		{"two processes do not share their records", "engine: [stores/E5, E8] atomic: committed", func(_ *saboteur, sub *Subject) {
			sub.Again = memstore.New(memstore.Options{})
		}},
		{"a transaction does its work twice", "engine: [stores/E5, E8] atomic: committed", func(s *saboteur, _ *Subject) {
			s.inTx = func(ctx context.Context, fn func(context.Context) error) error {
				return s.Store.InTx(ctx, func(ctx context.Context) error { return errors.Join(fn(ctx), fn(ctx)) })
			}
		}},
		{"a panic commits under the engine", "engine: [stores/E8, CT9] atomic: error", func(s *saboteur, _ *Subject) {
			s.inTx = func(ctx context.Context, fn func(context.Context) error) error {
				in, tx, err := s.Begin(ctx)
				if err != nil {
					return err
				}
				defer func() { _ = tx.Commit() }()
				if err = fn(in); err != nil {
					tx.Rollback()
				}
				return err
			}
			s.joined = func(ctx context.Context) (bool, bool, error) { in, _, err := s.Store.Joined(ctx); return in, in, err }
		}},
		{"a failing result is stored as a success", "engine: [stores/E8] atomic: a failing result", func(s *saboteur, _ *Subject) {
			s.completes(func(p *idempo.CompleteParams) { p.Result.Failing = false })
		}},
		{"a record under the next digest key is another record", "engine: [stores/E23] digest keys", func(s *saboteur, _ *Subject) {
			s.params(func(p *idempo.AcquireParams) { p.Aliases = nil })
		}},
		{"transactions are not seen in their context", "engine: [stores/E20] InTx: several keys", func(s *saboteur, _ *Subject) {
			s.joined = func(context.Context) (bool, bool, error) { return false, false, nil }
		}},
		{"a claim sent again is another claim", "engine: [stores/CT15] every call sent twice", func(s *saboteur, sub *Subject) {
			s.params(func(p *idempo.AcquireParams) {
				if r := s.is(*p); r.State == idempo.StatePending && r.Token == p.Token {
					p.Token[0] ^= 1
				}
			})
			sub.Again = s
		}},
		{"a completion is answered and not stored", "engine: [stores/CT30] leased: the Nth store call fails", func(s *saboteur, sub *Subject) {
			s.complete = func(_ context.Context, p idempo.CompleteParams) (idempo.Record, error) {
				r := s.at(p.Key, p.Now)
				r.State, r.Result, r.BodyKept = idempo.StateCompleted, p.Result, true
				return r, nil
			}
			sub.Again = s
		}},
	}
}

func operations(all iter.Seq[idempo.Record]) (names []string) {
	for r := range all {
		if !slices.Contains(names, r.Key.Operation) {
			names = append(names, r.Key.Operation)
		}
	}
	return names
}
