package inbox

// Declared returns the options of the inbox with every default filled in: what a contract document is made of.
func (in *Inbox) Declared() Options { return in.o }
