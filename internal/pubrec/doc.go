// Package pubrec is the publisher of tests: it records events, and can fail, delay or hold any of them. One copy serves
// package idempotest, for users, and package storetest.
//
// Layer: adapter.
package pubrec
