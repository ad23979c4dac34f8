// Package examples holds programs that show idempo at work, one folder each. README and guides copy from them. Those in sql are
// for psql, Python and Node.
package examples
