package idemhttp

// yieldTo leaves out of the rules for all routes what r, the rules of one, replaces as a whole. Some fields exclude each other:
// a route that takes its key from the body has no use for the header that the others share.
func (base Rules) yieldTo(r Rules) Rules {
	place := len(r.KeyHeaders) > 0 || r.KeyPointer != "" || len(r.KeyFrom) > 0
	switch r.Profile {
	case "square", "paypal", "aws": // these have a place of their own
		place = true
	}
	if place {
		base.KeyHeaders, base.KeyPointer, base.KeyFrom = nil, "", nil
	}
	if len(r.Exclude)+len(r.Include) > 0 {
		base.Exclude, base.Include = nil, nil
	}
	switch r.Fingerprint {
	case FingerprintRaw, FingerprintNone:
		base.Exclude, base.Include, base.Defaults = nil, nil, nil
	}
	return base
}
