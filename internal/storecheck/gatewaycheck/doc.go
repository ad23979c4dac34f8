// Package gatewaycheck kills processes that serve a gateway, with SIGKILL, and counts at the upstream what they sent.
//
// Layer: tests of their own module.
package gatewaycheck
