// Package storecheck runs the store kit on real databases.
package storecheck
