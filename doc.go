// Package idempo makes one business intent have one effect, however often it arrives.
package idempo
