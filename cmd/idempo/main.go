package main

import (
	"io"
	"log"
	"os"

	"github.com/idempo/idempo/cmd/idempo/internal/cli"
)

var version = "" // stamped by the build: -X main.version=v1.2.3

func main() {
	log.SetOutput(io.Discard) // net/http writes there, and quotes what an upstream sent; our own lines go to stderr by slog
	os.Exit(cli.Run(cli.Process{Args: os.Args[1:], Env: os.Environ(), In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Version: version}))
}
