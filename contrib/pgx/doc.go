// Package idempgx is the pgx store.
package idempgx
