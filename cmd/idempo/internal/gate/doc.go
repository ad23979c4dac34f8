// Package gate is who may log in to the dashboard of `idempo serve`: by the token in the data folder or the one-use link of the
// banner, by name and password, or by a header that a trusted proxy sets. It says who a request comes from (Authorize) and has the
// pages of the login; what they may see and do is up to package dashboard and the operator service.
//
//	g, err := gate.New(gate.Config{Mode: "token", Token: token})
//	ui, err := dashboard.New(dashboard.Config{Operator: ops, Authorize: g.Authorize, Login: g})
//	link := "http://127.0.0.1:7070/login?code=" + g.Code()
//
// Secrets are compared in constant time, ten failures a minute from one address are the end for that minute, and sessions live in
// memory: a restart logs everybody out.
//
// Layer: cmd.
package gate
