// Package upgrade has no code of its own. Its tests build the store of an earlier commit and the present one, and let both work
// on one database while its schema is brought up.
package upgrade
