package storetest

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/idempo/idempo"
)

func sabotages() []sabotage {
	return slices.Concat(acquireSabotages(), writeSabotages(), keySabotages(), resultSabotages(), retentionSabotages(), txSabotages(), otherSabotages(), engineSabotages(),
		takeoverSabotages(), claimSabotages(), settleSabotages(), digestSabotages(), memorySabotages(), endSabotages(), sweepSabotages(), failingSabotages(), openSabotages(), joinSabotages(), operatorSabotages())
}

func acquireSabotages() []sabotage {
	return []sabotage{
		{"the fingerprint is not compared", "transition: completed · Acquire", func(s *saboteur, _ *Subject) {
			s.params(func(p *idempo.AcquireParams) {
				if r := s.is(*p); r.State != "" && r.State != idempo.StateIssued {
					p.Hash, p.Recipe = r.Hash, r.Recipe
				}
			})
		}},
		{"a failed record's fingerprint does not bind", "transition: failed · Acquire", func(s *saboteur, _ *Subject) {
			s.params(func(p *idempo.AcquireParams) {
				if r := s.is(*p); r.State == idempo.StateFailed {
					p.Hash, p.Recipe = r.Hash, r.Recipe
				}
			})
		}},
		{"the recipe is not compared", "any snapshot, detail and hash come back equal", func(s *saboteur, _ *Subject) {
			s.params(func(p *idempo.AcquireParams) {
				if r := s.is(*p); r.State == idempo.StatePending {
					p.Recipe = r.Recipe
				}
			})
		}},
		{"a mismatch shows the result", "transition: completed · Acquire", func(s *saboteur, _ *Subject) {
			s.answers(func(p idempo.AcquireParams, a *idempo.Acquired) {
				if a.Verdict == idempo.VerdictMismatch {
					a.Record = s.is(p)
				}
			})
		}},
		{"expired with another fingerprint shows the pointer", "expired with another fingerprint shows no resource pointer", func(s *saboteur, _ *Subject) {
			s.answers(func(p idempo.AcquireParams, a *idempo.Acquired) {
				if a.Verdict == idempo.VerdictExpired {
					a.Record = s.is(p)
				}
			})
		}},
		{"losing is an error", "[stores/CT24] identical calls at once: one run", func(s *saboteur, _ *Subject) {
			s.acquire = func(ctx context.Context, p idempo.AcquireParams) (idempo.Acquired, error) {
				a, err := s.Store.Acquire(ctx, p)
				if a.Verdict == idempo.VerdictInProgress {
					return idempo.Acquired{}, &idempo.Error{Op: "acquire", Code: "in_progress"}
				}
				return a, err
			}
		}},
	}
}

func takeoverSabotages() []sabotage {
	return []sabotage{
		{"the own token is not recognised", "the same claim sent twice recognises itself", func(s *saboteur, _ *Subject) {
			s.params(func(p *idempo.AcquireParams) {
				if r := s.is(*p); r.State == idempo.StatePending && r.Token == p.Token {
					p.Token[0] ^= 1
				}
			})
		}},
		{"a recognised take-over is not told that it was one", "the same claim sent twice recognises itself", func(s *saboteur, _ *Subject) {
			s.answers(func(p idempo.AcquireParams, a *idempo.Acquired) {
				a.Lapsed = a.Lapsed && !a.Record.ClaimedAt.Before(p.Now) && a.Record.Attempt < 2
			})
		}},
		{"the attempt does not grow", "every take-over is one attempt more", func(s *saboteur, _ *Subject) {
			s.answers(func(_ idempo.AcquireParams, a *idempo.Acquired) { a.Record.Attempt = min(a.Record.Attempt, 1) })
		}},
		{"hold is not the default of the record", "transition: pending lapsed started, hold · Acquire", func(s *saboteur, _ *Subject) {
			s.params(func(p *idempo.AcquireParams) { p.OnCrash = idempo.OnCrashRerun })
		}},
		{"the caller's stricter policy is ignored", "transition: pending lapsed started, rerun · Acquire", func(s *saboteur, _ *Subject) {
			s.params(func(p *idempo.AcquireParams) {
				if r := s.is(*p); r.OnCrash != "" {
					p.OnCrash = r.OnCrash
				}
			})
		}},
		{"a take-over does not say Lapsed", "transition: in doubt, rerun · Acquire", func(s *saboteur, _ *Subject) {
			s.answers(func(_ idempo.AcquireParams, a *idempo.Acquired) { a.Lapsed = false })
		}},
		{"every run says Lapsed", "transition: absent · Acquire", func(s *saboteur, _ *Subject) {
			s.answers(func(_ idempo.AcquireParams, a *idempo.Acquired) { a.Lapsed = a.Verdict == idempo.VerdictRun })
		}},
	}
}

func claimSabotages() []sabotage {
	return []sabotage{
		{"RetryAfter is always a second", "RetryAfter is half the age", func(s *saboteur, _ *Subject) {
			s.answers(func(_ idempo.AcquireParams, a *idempo.Acquired) { a.RetryAfter = min(a.RetryAfter, time.Second) })
		}},
		{"the probe's time is not kept", "a doubt whose probe is not due says when", func(s *saboteur, _ *Subject) {
			s.release = func(ctx context.Context, p idempo.ReleaseParams) (idempo.Record, error) {
				p.Due = 0
				return s.Store.Release(ctx, p)
			}
		}},
		{"a take-over replaces the snapshot", "the derived key and the snapshot of the first claim stay", func(s *saboteur, _ *Subject) {
			s.answers(func(p idempo.AcquireParams, a *idempo.Acquired) { a.Record.Snapshot = bytes.Clone(p.Snapshot) })
		}},
		{"look, then insert", "[stores/CT24] identical calls at once: one run", func(s *saboteur, _ *Subject) {
			s.acquire = func(ctx context.Context, p idempo.AcquireParams) (idempo.Acquired, error) {
				absent := s.is(p).State == ""
				for range 100 {
					runtime.Gosched()
				}
				a, err := s.Store.Acquire(ctx, p)
				if absent && a.Verdict == idempo.VerdictInProgress {
					a.Verdict = idempo.VerdictRun
				}
				return a, err
			}
		}},
		{"a take-over reads, then updates without repeating the condition", "callers at a lapsed record", func(s *saboteur, _ *Subject) {
			s.acquire = func(ctx context.Context, p idempo.AcquireParams) (idempo.Acquired, error) {
				over := s.is(p).Lapsed(p.Now)
				for range 100 {
					runtime.Gosched()
				}
				a, err := s.Store.Acquire(ctx, p)
				if over && a.Verdict == idempo.VerdictInProgress {
					a.Verdict = idempo.VerdictRun
				}
				return a, err
			}
		}},
		{"a started claim is not marked as such", "transition: absent · Acquire", func(s *saboteur, _ *Subject) {
			s.params(func(p *idempo.AcquireParams) { p.StartMark = true })
		}},
	}
}

func writeSabotages() []sabotage {
	return []sabotage{
		{"Renew takes any token", "transition: pending alive, hold · Renew", func(s *saboteur, _ *Subject) {
			s.renew = func(ctx context.Context, p idempo.RenewParams) (idempo.Record, error) {
				p.Token = s.at(p.Key, p.Now).Token
				return s.Store.Renew(ctx, p)
			}
		}},
		{"Complete takes any token", "a write with a stale token changes nothing", func(s *saboteur, _ *Subject) {
			s.completes(func(p *idempo.CompleteParams) { p.Token = s.at(p.Key, p.Now).Token })
		}},
		{"Release takes any token", "a write with a stale token changes nothing", func(s *saboteur, _ *Subject) {
			s.release = func(ctx context.Context, p idempo.ReleaseParams) (idempo.Record, error) {
				p.Token = s.at(p.Key, p.Now).Token
				return s.Store.Release(ctx, p)
			}
		}},
		{"a late renewal takes the lease back", "a late renewal does not take the lease back", func(s *saboteur, _ *Subject) {
			s.renew = func(ctx context.Context, p idempo.RenewParams) (idempo.Record, error) {
				if r := s.at(p.Key, p.Now); !r.LeaseUntil.IsZero() && !r.LeaseUntil.After(p.Now) {
					p.Lease, p.Now = p.Lease+p.Now.Sub(r.LeaseUntil), r.LeaseUntil.Add(-time.Microsecond)
				}
				return s.Store.Renew(ctx, p)
			}
		}},
		{"a renewal shortens the lease", "a renewal extends from now and never shortens", func(s *saboteur, _ *Subject) {
			s.renew = func(ctx context.Context, p idempo.RenewParams) (idempo.Record, error) {
				r, err := s.Store.Renew(ctx, p)
				r.LeaseUntil = p.Now.Add(p.Lease)
				return r, err
			}
		}},
		{"a renewal does nothing", "transition: pending alive, hold · Renew", func(s *saboteur, _ *Subject) {
			s.renew = func(ctx context.Context, p idempo.RenewParams) (idempo.Record, error) {
				p.Lease = 0
				return s.Store.Renew(ctx, p)
			}
		}},
		{"the start mark is lost", "StartMark: set once by Renew", func(s *saboteur, _ *Subject) {
			s.renew = func(ctx context.Context, p idempo.RenewParams) (idempo.Record, error) {
				p.Start = false
				return s.Store.Renew(ctx, p)
			}
		}},
		{"every renewal starts", "StartMark: set once by Renew", func(s *saboteur, _ *Subject) {
			s.renew = func(ctx context.Context, p idempo.RenewParams) (idempo.Record, error) {
				p.Start = true
				return s.Store.Renew(ctx, p)
			}
		}},
		{"references are dropped", "references: in the claim, in doubt", func(s *saboteur, _ *Subject) {
			s.renew = func(ctx context.Context, p idempo.RenewParams) (idempo.Record, error) {
				p.Refer = idempo.Resource{}
				return s.Store.Renew(ctx, p)
			}
		}},
	}
}

func settleSabotages() []sabotage {
	return []sabotage{
		{"a second completion with another result is no error", "the same completion sent twice is harmless", func(s *saboteur, _ *Subject) {
			s.complete = func(ctx context.Context, p idempo.CompleteParams) (idempo.Record, error) {
				r, err := s.Store.Complete(ctx, p)
				if codeOf(err) == "wrong_state" {
					return s.at(p.Key, p.Now), nil
				}
				return r, err
			}
		}},
		{"a second equal completion is an error", "the same completion sent twice is harmless", func(s *saboteur, _ *Subject) {
			s.complete = func(ctx context.Context, p idempo.CompleteParams) (idempo.Record, error) {
				if s.at(p.Key, p.Now).State == idempo.StateCompleted {
					return idempo.Record{}, &idempo.Error{Op: "complete", Code: "wrong_state"}
				}
				return s.Store.Complete(ctx, p)
			}
		}},
		{"a late completion is refused after the lease", "a late completion or release is accepted", func(s *saboteur, _ *Subject) {
			s.complete = func(ctx context.Context, p idempo.CompleteParams) (idempo.Record, error) {
				if r := s.at(p.Key, p.Now); r.State == idempo.StatePending && r.Lapsed(p.Now) {
					return idempo.Record{}, &idempo.Error{Op: "complete", Code: "lease_lost"}
				}
				return s.Store.Complete(ctx, p)
			}
		}},
		{"late truth does not count in doubt", "transition: in doubt, hold · Complete", func(s *saboteur, _ *Subject) {
			s.complete = func(ctx context.Context, p idempo.CompleteParams) (idempo.Record, error) {
				if s.at(p.Key, p.Now).State == idempo.StateInDoubt {
					return idempo.Record{}, &idempo.Error{Op: "complete", Code: "lease_lost"}
				}
				return s.Store.Complete(ctx, p)
			}
		}},
		{"a doubt is written as a failure", "transition: pending alive, hold · Release", func(s *saboteur, _ *Subject) {
			s.release = func(ctx context.Context, p idempo.ReleaseParams) (idempo.Record, error) {
				p.To = idempo.StateFailed
				return s.Store.Release(ctx, p)
			}
		}},
		{"Forget remembers a failure", "Forget of a plain key: as new", func(s *saboteur, _ *Subject) {
			s.release = func(ctx context.Context, p idempo.ReleaseParams) (idempo.Record, error) {
				if p.To == idempo.StateIssued {
					p.To = idempo.StateFailed
				}
				return s.Store.Release(ctx, p)
			}
		}},
		{"the release of a completed key is no error", "Complete and Release one after the other", func(s *saboteur, _ *Subject) {
			s.release = func(ctx context.Context, p idempo.ReleaseParams) (idempo.Record, error) {
				r, err := s.Store.Release(ctx, p)
				if codeOf(err) == "wrong_state" {
					err = nil
				}
				return r, err
			}
		}},
		{"a second release is an error", "the same release sent twice is harmless", func(s *saboteur, _ *Subject) {
			s.release = func(ctx context.Context, p idempo.ReleaseParams) (idempo.Record, error) {
				if r := s.at(p.Key, p.Now); r.State == idempo.StateFailed {
					return idempo.Record{}, &idempo.Error{Op: "complete", Code: "lease_lost"}
				}
				return s.Store.Release(ctx, p)
			}
		}},
		{"the note is dropped", "transition: pending alive, not started · Release", func(s *saboteur, _ *Subject) {
			s.release = func(ctx context.Context, p idempo.ReleaseParams) (idempo.Record, error) {
				p.Note = ""
				return s.Store.Release(ctx, p)
			}
		}},
	}
}

func keySabotages() []sabotage {
	different := "keys that differ in one byte of one field"
	key := func(rule string, fold func(k idempo.Key) idempo.Key) sabotage {
		return sabotage{rule, different, func(s *saboteur, _ *Subject) { s.keys(fold) }}
	}
	return []sabotage{
		key("tenants are compared without case", func(k idempo.Key) idempo.Key { k.Tenant = strings.ToLower(k.Tenant); return k }),
		key("operations are compared without case", func(k idempo.Key) idempo.Key { k.Operation = strings.ToLower(k.Operation); return k }),
		key("trailing blanks do not count", func(k idempo.Key) idempo.Key { k.Tenant = strings.TrimRight(k.Tenant, " "); return k }),
		key("trailing blanks of digests do not count", func(k idempo.Key) idempo.Key { k.ID = strings.TrimRight(k.ID, " \x00"); return k }),
		key("digests are compared without case", func(k idempo.Key) idempo.Key { k.ID = strings.ToLower(k.ID); return k }),
		key("digests end at the first NUL", func(k idempo.Key) idempo.Key { k.ID, _, _ = strings.Cut(k.ID, "\x00"); return k }),
		key("digests are made valid UTF-8", func(k idempo.Key) idempo.Key {
			k.ID = strings.Repeat("?", len(k.ID)-len(strings.ToValidUTF8(k.ID, ""))) + strings.ToValidUTF8(k.ID, "")
			return k
		}),
		key("accents are composed", func(k idempo.Key) idempo.Key {
			k.Tenant = strings.ReplaceAll(k.Tenant, "c\u0327", "ç")
			return k
		}),
		key("invisible characters are dropped", func(k idempo.Key) idempo.Key {
			k.Tenant = strings.NewReplacer("\u00ad", "", "\u200b", "").Replace(k.Tenant)
			return k
		}),
		key("the parts are joined as text", func(k idempo.Key) idempo.Key {
			return idempo.Key{Tenant: k.Tenant + ":" + k.Operation, Operation: "x", ID: k.ID}
		}),
		key("the tenant does not count", func(k idempo.Key) idempo.Key { k.Tenant = "all"; return k }),
		{"long tenants are cut", "the longest fields", func(s *saboteur, _ *Subject) {
			s.keys(func(k idempo.Key) idempo.Key { k.Tenant = k.Tenant[:min(len(k.Tenant), 250)]; return k })
		}},
	}
}

func digestSabotages() []sabotage {
	return []sabotage{
		{"a claim occupies its first digest only", "one claim occupies all its digests", func(s *saboteur, _ *Subject) {
			s.params(func(p *idempo.AcquireParams) { p.Aliases = nil })
		}},
		{"a claim looks at its first digest only", "processes one rotation step apart never both win", func(s *saboteur, _ *Subject) {
			s.params(func(p *idempo.AcquireParams) {
				if s.is(idempo.AcquireParams{Key: p.Key, Now: p.Now}).State == "" {
					p.Aliases = nil
				}
			})
		}},
		{"identities are not occupied", "a known identity under a new key", func(s *saboteur, _ *Subject) {
			s.params(func(p *idempo.AcquireParams) { p.Unique = nil })
		}},
		{"identities are taken for digests of the key", "a known identity under a new key", func(s *saboteur, _ *Subject) {
			s.params(func(p *idempo.AcquireParams) { p.Aliases, p.Unique = append(slices.Clone(p.Aliases), p.Unique...), nil })
		}},
		{"only the first identity is occupied", "a claim occupies all its identities", func(s *saboteur, _ *Subject) {
			s.params(func(p *idempo.AcquireParams) { p.Unique = p.Unique[:min(1, len(p.Unique))] })
		}},
		{"release keeps the identity", "release gives the identity back", func(s *saboteur, _ *Subject) {
			s.release = func(ctx context.Context, p idempo.ReleaseParams) (idempo.Record, error) {
				p.Free = nil
				return s.Store.Release(ctx, p)
			}
		}},
		{"Lookup ignores the other digests", "a claim that meets its key under another digest follows it", func(s *saboteur, _ *Subject) {
			s.lookup = func(ctx context.Context, p idempo.LookupParams) (idempo.Record, error) {
				p.Aliases = nil
				return s.Store.Lookup(ctx, p)
			}
		}},
		{"a claim demands nothing of its key", "absent, lapsed and foreign keys get the same not_issued", func(s *saboteur, _ *Subject) {
			s.params(func(p *idempo.AcquireParams) { p.RequireIssued = false })
		}},
		{"a lapsed one-time key can be told from an absent one", "absent, lapsed and foreign keys get the same not_issued", func(s *saboteur, _ *Subject) {
			s.acquire = func(ctx context.Context, p idempo.AcquireParams) (idempo.Acquired, error) {
				a, err := s.Store.Acquire(ctx, p)
				if e, ok := errors.AsType[*idempo.Error](err); ok && s.at(p.Key, p.Now.Add(-time.Minute)).State != "" {
					e.Hint = "it has lapsed"
				}
				return a, err
			}
		}},
		{"the next key is not issued", "a completion issues the next key", func(s *saboteur, _ *Subject) {
			s.completes(func(p *idempo.CompleteParams) { p.Issue = nil })
		}},
		{"the next key is issued by a refused completion", "a completion issues the next key", func(s *saboteur, _ *Subject) {
			s.complete = func(ctx context.Context, p idempo.CompleteParams) (idempo.Record, error) {
				if p.Issue != nil {
					_, _ = s.Store.Acquire(ctx, *p.Issue)
				}
				return s.Store.Complete(ctx, p)
			}
		}},
	}
}

func resultSabotages() []sabotage {
	result := func(rule string, bend func(r *idempo.Result)) sabotage {
		return sabotage{rule, "any result comes back equal", func(s *saboteur, _ *Subject) {
			s.completes(func(p *idempo.CompleteParams) { p.Result.Header = slices.Clone(p.Result.Header); bend(&p.Result) })
		}}
	}
	return []sabotage{
		result("no body becomes an empty one", func(r *idempo.Result) {
			if r.Body == nil {
				r.Body = []byte{}
			}
		}),
		result("an empty body becomes none", func(r *idempo.Result) {
			if len(r.Body) == 0 {
				r.Body = nil
			}
		}),
		result("a body is cut at 64 KiB", func(r *idempo.Result) { r.Body = r.Body[:min(len(r.Body), 65536):len(r.Body)] }),
		result("a body ends at the first NUL", func(r *idempo.Result) {
			if head, _, cut := bytes.Cut(r.Body, []byte{0}); cut {
				r.Body = head
			}
		}),
		result("header names are canonical", func(r *idempo.Result) {
			for i := range r.Header {
				r.Header[i][0] = strings.ToUpper(r.Header[i][0])
			}
		}),
		result("repeated headers become one", func(r *idempo.Result) { r.Header = slices.Compact(r.Header) }),
		result("headers are sorted", func(r *idempo.Result) {
			slices.SortFunc(r.Header, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
		}),
		result("header values are made valid UTF-8", func(r *idempo.Result) {
			for i := range r.Header {
				r.Header[i][1] = strings.ToValidUTF8(r.Header[i][1], "\ufffd")
			}
		}),
		result("a negative status becomes 0", func(r *idempo.Result) { r.Status = max(r.Status, 0) }),
		result("Failing is dropped", func(r *idempo.Result) { r.Failing = false }),
		result("the resource loses its type", func(r *idempo.Result) { r.Resource.Type = "" }),
	}
}

func memorySabotages() []sabotage {
	return []sabotage{
		{"a body that was not kept is said to be kept", "a body that was not kept", func(s *saboteur, _ *Subject) {
			s.completes(func(p *idempo.CompleteParams) { p.Kept = true })
		}},
		{"the sealing key's id is dropped", "the sealing key's id and the trace", func(s *saboteur, _ *Subject) {
			s.completes(func(p *idempo.CompleteParams) { p.Sealed = "" })
		}},
		{"an empty snapshot becomes none", "any snapshot, detail and hash come back equal", func(s *saboteur, _ *Subject) {
			s.params(func(p *idempo.AcquireParams) {
				if len(p.Snapshot) == 0 {
					p.Snapshot = nil
				}
			})
		}},
		{"what is returned is shared with the store", "what is returned is the caller's", func(s *saboteur, _ *Subject) {
			var mu sync.Mutex
			shared := map[idempo.Key]idempo.Record{}
			s.lookup = func(ctx context.Context, p idempo.LookupParams) (idempo.Record, error) {
				mu.Lock()
				defer mu.Unlock()
				r, err := s.Store.Lookup(ctx, p)
				if old := shared[p.Key]; old.State == r.State {
					return old, nil
				}
				shared[p.Key] = r
				return r, err
			}
		}},
		{"the caller's memory is kept", "what the caller changes afterwards has no influence", func(s *saboteur, _ *Subject) {
			var mu sync.Mutex
			kept := map[idempo.Key][]byte{}
			s.params(func(p *idempo.AcquireParams) {
				mu.Lock()
				defer mu.Unlock()
				kept[p.Key] = p.Snapshot
			})
			s.reads(func(r *idempo.Record) {
				mu.Lock()
				defer mu.Unlock()
				r.Snapshot = kept[r.Key]
			})
		}},
		{"the caller's memory is changed", "the params are not changed", func(s *saboteur, _ *Subject) {
			s.completes(func(p *idempo.CompleteParams) {
				slices.SortFunc(p.Result.Header, func(a, b [2]string) int { return strings.Compare(b[1], a[1]) })
			})
		}},
		{"a reader without body gets the body", "transition: completed · Lookup", func(s *saboteur, _ *Subject) {
			s.lookup = func(ctx context.Context, p idempo.LookupParams) (idempo.Record, error) {
				p.WithoutBody = false
				return s.Store.Lookup(ctx, p)
			}
		}},
		{"a later call replaces the surface", "a later call's settings do not change what is stored", func(s *saboteur, _ *Subject) {
			var mu sync.Mutex
			surface := ""
			s.params(func(p *idempo.AcquireParams) {
				mu.Lock()
				defer mu.Unlock()
				surface = p.Surface
			})
			s.reads(func(r *idempo.Record) {
				mu.Lock()
				defer mu.Unlock()
				r.Surface = surface
			})
		}},
	}
}

func retentionSabotages() []sabotage {
	return []sabotage{
		{"a state is only what a sweep made of it", "no sweeper, ever", func(s *saboteur, _ *Subject) {
			s.lookup = func(ctx context.Context, p idempo.LookupParams) (idempo.Record, error) {
				if r := s.at(p.Key, p.Now); r.State == idempo.StateExpired {
					p.Now = r.CompletedAt
				}
				return s.Store.Lookup(ctx, p)
			}
		}},
		{"a lapsed lease is only what a sweep made of it", "transition: pending lapsed started, hold · Lookup", func(s *saboteur, _ *Subject) {
			s.reads(func(r *idempo.Record) {
				if r.State == idempo.StateInDoubt && !r.LeaseUntil.After(r.Now) {
					r.State = idempo.StatePending
				}
			})
		}},
		{"the last instant counts as before the end", "no sweeper, ever", func(s *saboteur, _ *Subject) {
			s.params(func(p *idempo.AcquireParams) { p.Now = p.Now.Add(-time.Microsecond) })
		}},
		{"the lease's last instant counts as alive", "a renewal extends from now and never shortens", func(s *saboteur, _ *Subject) {
			s.params(func(p *idempo.AcquireParams) {
				if r := s.is(*p); r.LeaseUntil.Equal(p.Now) {
					p.Now = p.Now.Add(-time.Microsecond)
				}
			})
		}},
		{"a tombstone is forgotten", "no sweeper, ever", func(s *saboteur, _ *Subject) {
			s.completes(func(p *idempo.CompleteParams) { p.Tombstone = 0 })
		}},
	}
}

func endSabotages() []sabotage {
	return []sabotage{
		{"for ever is a time like any other", "a tombstone for ever", func(s *saboteur, _ *Subject) {
			s.completes(func(p *idempo.CompleteParams) { p.Tombstone = min(p.Tombstone, 100*365*24*time.Hour) })
		}},
		{"retention counts from the claim", "counted from completion, fixed in the row", func(s *saboteur, _ *Subject) {
			s.completes(func(p *idempo.CompleteParams) { p.Retention -= p.Now.Sub(s.at(p.Key, p.Now).ClaimedAt) })
		}},
		{"a tombstone keeps the body", "a tombstone keeps the fact and the pointer", func(s *saboteur, _ *Subject) {
			s.reads(func(r *idempo.Record) {
				if r.State == idempo.StateExpired {
					r.Result.Body = []byte("kept")
				}
			})
		}},
		{"a tombstone loses the pointer", "a tombstone keeps the fact and the pointer", func(s *saboteur, _ *Subject) {
			s.reads(func(r *idempo.Record) {
				if r.State == idempo.StateExpired {
					r.Result.Resource = idempo.Resource{}
				}
			})
		}},
		{"a failure lasts for ever", "a failure is gone after its retention", func(s *saboteur, _ *Subject) {
			s.release = func(ctx context.Context, p idempo.ReleaseParams) (idempo.Record, error) {
				p.Retention *= 1000
				return s.Store.Release(ctx, p)
			}
		}},
		{"an issued key lasts for ever", "an issued and unused key is gone after its time", func(s *saboteur, _ *Subject) {
			s.params(func(p *idempo.AcquireParams) { p.Issue *= 1000 })
		}},
		{"a doubt expires", "pending and in doubt never expire", func(s *saboteur, _ *Subject) {
			s.reads(func(r *idempo.Record) {
				if r.State == idempo.StateInDoubt && r.Now.Sub(r.ChangedAt) > 10000*time.Hour {
					*r = idempo.Record{}
				}
			})
		}},
		{"the caller's clock decides", "without Now, leases and times are the store's clock", func(s *saboteur, _ *Subject) {
			s.params(func(p *idempo.AcquireParams) {
				if p.Now.IsZero() {
					p.Now = time.Now().Add(5 * time.Minute)
				}
			})
		}},
	}
}

func sweepSabotages() []sabotage {
	return []sabotage{
		{"a sweep does nothing", "a sweep makes results tombstones", func(s *saboteur, _ *Subject) {
			s.sweep = func(context.Context, int) (int, error) { return 0, nil }
		}},
		{"a sweep knows no batches", "batches: at most so many", func(s *saboteur, _ *Subject) {
			s.sweep = func(ctx context.Context, _ int) (int, error) { return s.Store.Sweep(ctx, 1_000_000) }
		}},
		{"a sweep miscounts", "two sweepers at once lose nothing", func(s *saboteur, sub *Subject) {
			s.sweep = func(ctx context.Context, batch int) (int, error) {
				n, err := s.Store.Sweep(ctx, batch)
				return n / 2, err
			}
			sub.Again = s
		}},
		{"a sweep removes results without a tombstone", "a sweep makes results tombstones", func(s *saboteur, _ *Subject) {
			swept := false
			s.sweep = func(ctx context.Context, batch int) (int, error) { swept = true; return s.Store.Sweep(ctx, batch) }
			s.reads(func(r *idempo.Record) {
				if swept && r.State == idempo.StateExpired {
					*r = idempo.Record{}
				}
			})
		}},
		{"a sweep removes claims that never started", "a sweep never touches what is live", func(s *saboteur, _ *Subject) {
			s.sweep = func(ctx context.Context, batch int) (int, error) {
				for r := range s.All() {
					if r.Lapsed(r.Now) && r.StartedAt.IsZero() {
						_, _ = s.Store.Release(ctx, idempo.ReleaseParams{Key: r.Key, Token: r.Token, To: idempo.StateIssued})
					}
				}
				return s.Store.Sweep(ctx, batch)
			}
		}},
		{"a sweep settles doubts", "a sweep moves started records of vanished owners", func(s *saboteur, _ *Subject) {
			s.sweep = func(ctx context.Context, batch int) (int, error) {
				n, err := s.Store.Sweep(ctx, batch)
				for r := range s.All() {
					if r.State == idempo.StateInDoubt {
						_, _ = s.Store.Release(ctx, idempo.ReleaseParams{Key: r.Key, Token: r.Token, To: idempo.StateFailed, Retention: time.Hour})
					}
				}
				return n, err
			}
		}},
	}
}
