// Command idempo makes one business intent have one effect, from the command line: `idempo help` lists what it does.
package main
