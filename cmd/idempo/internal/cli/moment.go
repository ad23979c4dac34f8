package cli

import "time"

// moment shows a time in the local zone with its offset, to the second; nothing for none. TZ of the process's environment is the
// local zone.
func (a *app) moment(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.In(a.zone()).Format("2006-01-02 15:04:05-07:00")
}

func (a *app) zone() *time.Location {
	if name, ok := a.lookupEnv("TZ"); ok {
		if l, err := time.LoadLocation(name); err == nil {
			return l
		}
	}
	return time.Local
}
