// Package docfile reads OpenAPI and AsyncAPI documents, YAML or JSON, into trees of package contract. Only the binary links a YAML
// parser; the judging is done by contract, on the standard library.
//
// Layer: cmd.
package docfile
