// Package examples holds programs that show idempo at work.
package examples
