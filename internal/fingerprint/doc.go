// Package fingerprint makes digests of fields that are never joined as text: each field is led by its length as four
// bytes big-endian, so no two different lists of fields feed a hash the same bytes. It holds the derived downstream key
// (page saga, rule 5), the keys that SQL callers make (page stores, E23) and the subkeys of digest keys (page
// security, 2.3).
//
// Layer: domain. It imports the standard library only.
package fingerprint
