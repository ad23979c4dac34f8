// Package ci tests the scripts under .ci with tools that pretend, so that a red phase is known to stop the build.
package ci
