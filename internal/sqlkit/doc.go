// Package sqlkit is what the SQL stores share: the columns of table records and how a row becomes an idempo.Record,
// the JSON of headers and references, query and migration files with their placeholders, and the record of which
// migration was applied. It judges nothing: the rules are the root package's.
//
// Layer: adapter.
package sqlkit
