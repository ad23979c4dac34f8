// Package examples holds programs that show idempo at work, one folder each. README and guides copy from them.
package examples
