package server

import (
	"context"
	"io"

	"github.com/idempo/idempo/cmd/idempo/internal/database"
	"github.com/idempo/idempo/cmd/idempo/internal/publish"
	"github.com/idempo/idempo/cmd/idempo/internal/relaying"
)

// publish runs the relays of the configuration over the server's own store, until ctx ends; then each finishes what it has sent
// and gives its partitions up. One that must not go on says so in the log, and the rest of the server goes on.
func (s *Server) publish(ctx context.Context) {
	var jobs []relaying.Job
	for _, r := range s.settings.Relays {
		r.Options.Observer = s.metrics
		jobs = append(jobs, relaying.Job{Name: s.store.Name, Relay: r, Log: s.log, Publish: publish.Options{Out: io.Discard, Logger: s.log, Allow: s.settings.Gateway.Outbound.Allow, Ports: s.settings.Gateway.Outbound.Ports},
			Open: func(context.Context) (*database.Store, error) { return s.store.Shared(), nil }})
	}
	if len(jobs) == 0 {
		return
	}
	runner := relaying.Start(ctx, jobs)
	s.work.Go(func() { _ = runner.Wait() })
}
