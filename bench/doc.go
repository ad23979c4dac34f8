// Bench measures idempo against hand-written peers and other projects on the same work, as ratios inside one run:
// alternating rounds, median over the rounds.
//
//	go run ./bench                 # everything; prints the table of README.md
//	go run ./bench -run E35        # the measures whose id matches
//
// It needs a PostgreSQL server: IDEMPO_TEST_POSTGRES, or one on 127.0.0.1:5432.
package main
