package idempotest

import "github.com/idempo/idempo/internal/pubrec"

// Publisher is an outbox.Publisher that records what it is given, and can fail, delay or hold any event. The zero value
// takes everything. It is safe for concurrent use; set its fields before it is.
type Publisher = pubrec.Publisher
