// Package config reads idempo's configuration file: one YAML 1.2 document, read strictly.
//
// One table (schema.go) names every key with its kind, default and meaning. Reading, the hints about misspelt keys, the
// example file, the JSON Schema and `config check --print` all come from it, so they cannot differ.
//
// [Load] reports every mistake of a file in one go, each as FILE:LINE:COL: path: message. It never guesses: a duration has a
// unit, a boolean is true or false, a number is not text. Values may stand outside the file, in the environment or in files of
// their own; such values, and all secrets, are never printed, not even in a mistake.
//
// Layer: cmd. It opens nothing but the file and the files named in it.
package config
