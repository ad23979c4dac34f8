package fingerprint

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"io"
)

// Write feeds fields to w, each led by its length. Hashes never fail, so errors of w are ignored.
func Write(w io.Writer, fields ...string) {
	var n [4]byte
	for _, f := range fields {
		binary.BigEndian.PutUint32(n[:], uint32(len(f)))
		_, _ = w.Write(n[:])
		_, _ = io.WriteString(w, f)
	}
}

// WriteBytes is Write for bytes.
func WriteBytes(w io.Writer, fields ...[]byte) {
	var n [4]byte
	for _, f := range fields {
		binary.BigEndian.PutUint32(n[:], uint32(len(f)))
		_, _ = w.Write(n[:])
		_, _ = w.Write(f)
	}
}

// Sum is SHA-256 over fields.
func Sum(fields ...string) [sha256.Size]byte {
	h := sha256.New()
	Write(h, fields...)
	return [sha256.Size]byte(h.Sum(nil))
}

// Derive returns UUID text made of SHA-256 over `idempo-derive-1` and fields: the first 16 bytes, shaped as version 4,
// since some APIs demand it. No secret goes in, so that rotating one never changes a key.
func Derive(fields ...string) string {
	h := sha256.New()
	Write(h, "idempo-derive-1")
	Write(h, fields...)
	b := h.Sum(nil)[:16]
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	var out [36]byte
	hex.Encode(out[:8], b[:4])
	out[8] = '-'
	hex.Encode(out[9:13], b[4:6])
	out[13] = '-'
	hex.Encode(out[14:18], b[6:8])
	out[18] = '-'
	hex.Encode(out[19:23], b[8:10])
	out[23] = '-'
	hex.Encode(out[24:], b[10:])
	return string(out[:])
}

// Subkey derives the 32-byte key for one purpose and tenant from a secret by HKDF-SHA-256, so that equal inputs of two
// tenants or purposes have unrelated digests.
func Subkey(secret []byte, purpose, tenant string) ([]byte, error) {
	var info []byte
	for _, f := range []string{purpose, tenant} {
		info = binary.BigEndian.AppendUint32(info, uint32(len(f)))
		info = append(info, f...)
	}
	return hkdf.Key(sha256.New, secret, nil, string(info), sha256.Size)
}
