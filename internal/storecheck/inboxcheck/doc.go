// Package inboxcheck kills consumers with SIGKILL at every step of a message's way, delivers again as a broker would, and
// counts effects outside of them. It has tests only.
package inboxcheck
