package operator_test

import (
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
)

func TestDoubtfulSince(t *testing.T) {
	t.Parallel()
	t.Run("[operations/OP19] what an owner has said counts from then, also after its lease; who vanished, from the end of the lease", func(t *testing.T) {
		b := newBed(t)
		said := b.doubt("a", "1")
		p := b.claim("a", "2")
		at := b.now
		b.now = b.now.Add(time.Hour)
		for ref, want := range map[string]time.Time{said: at, p.Key.Ref(): at.Add(time.Minute)} {
			s, err := b.ops.Show(t.Context(), operator.ShowParams{By: ann(), Target: operator.Target{Ref: ref}})
			if err != nil || s.Record.State != idempo.StateInDoubt || !operator.DoubtfulSince(s.Record).Equal(want) {
				t.Error(ref, s.Record.State, operator.DoubtfulSince(s.Record), want, err)
			}
			last := s.Timeline[len(s.Timeline)-1]
			if words := map[string]string{said: "in_doubt cut off", p.Key.Ref(): "lease ended "}; last.What+" "+last.Text != words[ref] {
				t.Error(last)
			}
		}
	})
}
