// Package server is the process behind `idempo serve`: it opens the store, makes the engine, the gateway, health, metrics and
// logs, and stops them in the right order.
//
//	s, err := server.New(ctx, settings, server.Options{Log: os.Stderr})
//	err = s.Start()          // listens; s.Addr() and s.AdminAddr() say where
//	left := s.Stop(ctx)      // drains; 0: nothing was cut
//
// Everything a test needs is a value: addresses with port 0, streams, signals. Nothing global is touched. New opens and checks
// before anything listens, so that a start that fails leaves nothing half started.
//
// Layer: cmd.
package server
