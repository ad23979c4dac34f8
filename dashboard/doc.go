// Package dashboard is the operator's view of a store as web pages: what is in doubt, what became of a key, who settled it and
// why. It is an [http.Handler] to mount under any prefix, behind any login:
//
//	ui, err := dashboard.New(dashboard.Config{Operator: ops, Prefix: "/ops/idempo",
//		Authorize: func(r *http.Request) (dashboard.Principal, error) { return staff(r) }})
//	mux.Handle("/ops/idempo/", ui)
//
// It is closed by default: without Authorize there is no dashboard. Pages are made on the server and work without JavaScript; the
// one script refreshes what has changed, tells times in the reader's zone and copies commands. Nothing is loaded from elsewhere.
// Everything it shows and does goes through [operator.Service], so rights, refusals and audit rows are those of the command line.
//
// The way of a request: Handler.ServeHTTP (host, headers) → Authorize → a page of overview.go, keys.go, key.go, doubt.go, audit.go,
// settings.go, or act.go for what changes something → layout.html. The same data as JSON is in api.go, under Prefix/api/v1.
//
// GET changes nothing. What does is a POST with a form token, made for the browser session and the person, from a page of this
// very origin. A stored answer is shown only to an admin who gives a reason, as text.
//
// What it never promises: that numbers are one moment, or that those of this process are those of all.
//
// Layer: adapter.
package dashboard
