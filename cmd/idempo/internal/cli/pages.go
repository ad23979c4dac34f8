package cli

// pages shows what a list holds, at most size items at a time, none of which is kept. Where limit (0: none) ends it, it says
// how the list goes on. next returns items behind the cursor after, and the cursor behind them, "" at the end; what names the
// items where there are none.
func pages[T any](a *app, what string, size, limit int, after string, next func(limit int, after string) (items []T, more string, err error), show func(item T, first bool) error) error {
	for shown := 0; ; {
		most := size
		if limit > 0 {
			most = min(size, limit-shown)
		}
		items, more, err := next(most, after)
		if err != nil {
			return err
		}
		for _, item := range items {
			if err := show(item, shown == 0); err != nil {
				return err
			}
			shown++
		}
		switch {
		case more == "":
			if shown == 0 && !a.json {
				a.err.line("no " + what + " match")
			}
			return nil
		case limit > 0 && shown >= limit:
			a.err.printf("more: --after %s\n", more)
			return nil
		}
		after = more
	}
}
