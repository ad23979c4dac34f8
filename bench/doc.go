// Package bench measures idempo against its peers.
package bench
