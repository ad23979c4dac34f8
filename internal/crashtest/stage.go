package crashtest

import (
	"encoding/json"
	"io"
	"sync"
)

// Stage is a service's side of a Process. Its methods are safe for concurrent use.
type Stage struct {
	// Halt is the point where the service stops for good, to be killed there; "": nowhere.
	Halt string
	// Pass is a point that the service announces and runs on from, to be killed somewhere behind it.
	Pass string

	mu   sync.Mutex
	out  *json.Encoder
	jobs sync.WaitGroup
}

// NewStage returns a Stage that speaks on out, which nothing else may write to.
func NewStage(halt, pass string, out io.Writer) *Stage {
	return &Stage{Halt: halt, Pass: pass, out: json.NewEncoder(out)}
}

// At says that the service is at point, with what it has to say about it. At Halt it does not return.
func (s *Stage) At(point string, say any) {
	switch point {
	case "":
	case s.Halt:
		s.announce(point, say)
		select {} // until SIGKILL; the process goes on reading its input
	case s.Pass:
		s.announce(point, say)
	}
}

func (s *Stage) announce(point string, say any) {
	text, err := json.Marshal(say)
	if err != nil {
		text = nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.out.Encode(Event{At: point, Say: text}) // nobody reads any more only when the test is over
}

// Serve reads jobs from in until it ends and answers each with what do returns. do runs in a goroutine per job; Serve
// does not wait for those still running.
func (s *Stage) Serve(in io.Reader, do func(what json.RawMessage) any) {
	for lines := json.NewDecoder(in); ; {
		var j job
		if lines.Decode(&j) != nil {
			return
		}
		s.jobs.Go(func() {
			text, err := json.Marshal(do(j.What))
			if err != nil {
				text = nil
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			_ = s.out.Encode(Event{ID: j.ID, Say: text})
		})
	}
}

// Wait returns when every job that was given so far is answered.
func (s *Stage) Wait() { s.jobs.Wait() }
