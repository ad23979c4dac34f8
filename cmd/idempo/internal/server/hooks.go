package server

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/idempo/idempo/webhook"
)

// receive makes the receiver of the webhook sources, if there are any.
func (s *Server) receive() (err error) {
	c := s.settings.Webhooks.Config
	if len(c.Sources) == 0 {
		return nil
	}
	c.Engine, c.Logger, c.Observer = s.engine, s.log, s.metrics.Webhooks()
	s.hooks, err = webhook.New(c)
	return err
}

// serveFront serves what callers and providers send: webhooks below their path, the gateway elsewhere. bg ends the workers
// of webhooks; they then end what they have begun.
func (s *Server) serveFront(bg context.Context) {
	listener := s.listeners[0]
	if first := s.serving.current().gateway; first != nil {
		s.front = first.Server()
		s.front.Handler = identified(&s.serving)
		listener = first.Listener(listener)
	} else {
		s.front = &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 32 << 10,
			ErrorLog: log.New(io.Discard, "", 0)}
	}
	if s.hooks != nil {
		s.front.Handler = below(s.settings.Webhooks.Path, s.hooks, s.front.Handler)
		s.work.Go(func() {
			if err := s.hooks.Run(bg); err != nil {
				s.log.Error("webhooks stopped", "error", err.Error())
			}
		})
	}
	s.work.Go(func() { _ = s.front.Serve(listener) })
}

// below sends PATH/SOURCE to hooks and everything else on. Hooks get the request as it came: the ids that are given to
// other requests would pass for the provider's.
func below(path string, hooks, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		source, ok := strings.CutPrefix(r.URL.Path, path+"/")
		if !ok || source == "" || strings.Contains(source, "/") {
			next.ServeHTTP(w, r)
			return
		}
		hooks.ServeHTTP(w, r)
	})
}

// hookLines says of every source where it comes in and where it goes.
func (s *Server) hookLines(b *strings.Builder) {
	for _, src := range s.settings.Webhooks.Config.Sources {
		if src.Hold {
			fmt.Fprintf(b, "  webhook   %s\n", folded("POST "+s.settings.Webhooks.Path+"/"+src.Name, "provider "+src.Provider, "kept until forward says where to"))
			continue
		}
		to := "nowhere"
		if u, err := url.Parse(src.Forward.URL); err == nil {
			to = u.Scheme + "://" + u.Host + u.EscapedPath() // a query may hold what is nobody's business
		}
		again := "the target deduplicates"
		if !*src.Forward.TargetDedups {
			again = "in doubt without an answer"
		}
		fmt.Fprintf(b, "  webhook   %s\n", folded("POST "+s.settings.Webhooks.Path+"/"+src.Name, "provider "+src.Provider, "to "+to, again))
	}
}
