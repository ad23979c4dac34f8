package storetest

import (
	"strings"

	"github.com/idempo/idempo"
)

func keyCases() []testCase {
	return []testCase{
		{name: "[stores/E1] keys that differ in one byte of one field, or split alike bytes differently, are different keys", run: differentKeys},
		{name: "[stores/E1] the longest fields", run: longestKey},
	}
}

// pad makes a 32-byte digest of s.
func pad(s string) string { return s + strings.Repeat("x", 32-len(s)) }

// alikeKeys returns keys that a collation, an affinity, a pattern or a joined text would take for one another.
func alikeKeys(tenant string) (keys []idempo.Key) {
	id := pad("id")
	for _, t := range []string{"acct", "Acct", "ACCT", "acct ", " acct", "acçt", "ac\u0327ct", "açct", "acct%", "acc_", "ac\u00adct", "acct\u200b",
		"007", "7", "07", "7.0", "ß", "ss", "ı", "i", "I", "İ", "null", "NULL", "'", "''", `\`, `\\`, `"`, "日本", "日本語", "\U0001f600", "\U0001f601"} {
		keys = append(keys, idempo.Key{Tenant: tenant + t, Operation: "op", ID: id})
	}
	for _, o := range []string{"create", "Create", "create.", "create-order", "create_order", "createXorder", "0", "00", "1e3", "1000"} {
		keys = append(keys, idempo.Key{Tenant: tenant, Operation: o, ID: id})
	}
	for _, d := range []string{strings.Repeat("\x00", 32), strings.Repeat("\x00", 31) + "\x01", "\x01" + strings.Repeat("\x00", 31), strings.Repeat("\xff", 32),
		strings.Repeat("a", 32), strings.Repeat("A", 32), strings.Repeat(" ", 32), strings.Repeat("a", 31) + " ", strings.Repeat("a", 31) + "\x00",
		pad("\xc3\x28 invalid"), pad("\xff"), pad("\xfe"), pad("?"), pad("\ufffd"), pad("\xc3\xa9"), pad("e\xcc\x81"), pad("'--"), pad(`\x00`), pad("%"), pad("_"), pad("\\"), pad("0x41"), pad("\r\n"), pad("\n")} {
		keys = append(keys, idempo.Key{Tenant: tenant, Operation: "op", ID: d})
	}
	return append(keys, // the same bytes, split at other places
		idempo.Key{Tenant: tenant + "a", Operation: "bc", ID: id}, idempo.Key{Tenant: tenant + "ab", Operation: "c", ID: id},
		idempo.Key{Tenant: tenant + ":a", Operation: "b:c", ID: id}, idempo.Key{Tenant: tenant + ":a:b", Operation: "c", ID: id})
}

func differentKeys(k *K) {
	keys := alikeKeys(k.tenant)
	for i, key := range keys {
		p := k.claim(key)
		p.Snapshot = []byte{byte(i), 0}
		if a, err := k.Store.Acquire(k.ctx, p); err != nil || a.Verdict != idempo.VerdictRun {
			k.Errorf("key %d, %q %q %q: %q, %v", i, key.Tenant, key.Operation, key.ID, a.Verdict, err)
		}
	}
	for i, key := range keys {
		if r := k.look(key, k.t0); r.Key != key || len(r.Snapshot) != 2 || r.Snapshot[0] != byte(i) {
			k.Errorf("key %d, %q %q %q: reads as %q %q %q", i, key.Tenant, key.Operation, key.ID, r.Key.Tenant, r.Key.Operation, r.Key.ID)
		}
	}
}

func longestKey(k *K) {
	for _, fill := range []string{"t", "é"} {
		long := idempo.Key{Tenant: k.tenant + strings.Repeat(fill, (255-len(k.tenant))/len(fill)), Operation: strings.Repeat("o", 200), ID: k.key().ID}
		short := long
		short.Tenant = long.Tenant[:len(long.Tenant)-len(fill)]
		for _, key := range []idempo.Key{long, short} {
			want := k.completed(k.claim(key))
			k.same("the row", k.look(key, k.t0), want)
		}
	}
}
