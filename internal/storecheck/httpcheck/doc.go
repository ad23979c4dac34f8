// Package httpcheck runs package idemhttp on real databases: what only a transaction, several processes or a killed one
// can show. Its tests start their own binary again as the services of a fleet.
//
// Layer: internal/storecheck.
package httpcheck
