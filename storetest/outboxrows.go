package storetest

func outboxCases() []testCase { return nil }
func relayCases() []testCase  { return nil }
