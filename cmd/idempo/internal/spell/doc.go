// Package spell finds the word that somebody most likely meant. The command line and the configuration file use it, so that a
// misspelt name is always answered with the nearest valid one. Layer: cmd, standard library only.
package spell
