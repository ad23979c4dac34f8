// Package contractcheck judges printed OpenAPI documents by the schema that the OpenAPI Initiative publishes.
//
// It holds tests only, in a module of its own, so that the validator is linked into nothing else.
package contractcheck
