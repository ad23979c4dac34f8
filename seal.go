package idempo

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/idempo/idempo/internal/fingerprint"
)

// Results and snapshots are encrypted by AES-256-GCM under HKDF-SHA-256(encryption key, tenant, 16 random bytes), with a
// random 96-bit nonce. The additional data binds a ciphertext to its row, attempt and field, so that one moved or
// replaced by a writer of the database does not open.
const (
	sealFormat = "idempo-seal-1"
	saltSize   = 16
	// A snapshot says how it is kept in its first byte, since it is written before the result picks Record.Sealed.
	snapshotClear, snapshotSealed = 0, 1
)

func (e *Engine) encryptionKeys(tenant string) ([]Secret, error) {
	if e.cfg.EncryptionKeyFunc == nil {
		return e.cfg.EncryptionKeys, nil
	}
	keys, err := e.cfg.EncryptionKeyFunc(tenant)
	if err != nil {
		return nil, &Error{Op: "seal", Code: "unavailable", Err: err}
	}
	if errs := checkSecrets("EncryptionKeyFunc", keys, 32, 32); len(errs) > 0 {
		return nil, &Error{Op: "seal", Code: "unavailable", Err: errs[0]}
	}
	return keys, nil
}

// seal encrypts what p keeps, where encryption is on.
func (e *Engine) seal(p *CompleteParams) error {
	keys, err := e.encryptionKeys(p.Key.Tenant)
	if err != nil || len(keys) == 0 {
		return err
	}
	p.Sealed = keys[0].ID
	if p.Result.Body != nil {
		if p.Result.Body, err = encrypt(keys[0], p.Key, p.Attempt, "body", p.Result.Body); err != nil {
			return err
		}
	}
	if len(p.Result.Header) == 0 {
		return nil
	}
	plain, err := json.Marshal(headerBytes(p.Result.Header))
	if err != nil {
		return err
	}
	box, err := encrypt(keys[0], p.Key, p.Attempt, "header", plain)
	p.Result.Header = [][2]string{{"", string(box)}}
	return err
}

func headerBytes(h [][2]string) [][2][]byte {
	out := make([][2][]byte, len(h))
	for i, p := range h {
		out[i] = [2][]byte{[]byte(p[0]), []byte(p[1])}
	}
	return out
}

// open decrypts the result of rec; code result_unreadable where that cannot be done. The effect stands either way.
func (e *Engine) open(rec Record) (Record, error) {
	if rec.Sealed == "" || rec.State != StateCompleted {
		return rec, nil
	}
	key, err := e.encryptionKey(rec.Key.Tenant, rec.Sealed)
	if err != nil {
		return Record{}, unreadable(rec, err)
	}
	if rec.Result.Body != nil {
		if rec.Result.Body, err = decrypt(key, rec.Key, rec.Attempt, "body", rec.Result.Body); err != nil {
			return Record{}, unreadable(rec, err)
		}
	}
	if len(rec.Result.Header) == 0 {
		return rec, nil
	}
	var pairs [][2][]byte
	plain, err := decrypt(key, rec.Key, rec.Attempt, "header", []byte(rec.Result.Header[0][1]))
	if err == nil {
		err = json.Unmarshal(plain, &pairs)
	}
	if err != nil {
		return Record{}, unreadable(rec, err)
	}
	rec.Result.Header = make([][2]string, len(pairs))
	for i, p := range pairs {
		rec.Result.Header[i] = [2]string{string(p[0]), string(p[1])}
	}
	return rec, nil
}

func unreadable(rec Record, err error) error {
	return &Error{Op: "open", Code: "result_unreadable", KeyRef: rec.Ref(), Attempt: rec.Attempt, Err: err,
		Hint: "the effect stands; idempo keys show " + rec.Ref()}
}

func (e *Engine) encryptionKey(tenant, id string) (Secret, error) {
	keys, err := e.encryptionKeys(tenant)
	if err != nil {
		return Secret{}, err
	}
	for _, k := range keys {
		if k.ID == id {
			return k, nil
		}
	}
	return Secret{}, fmt.Errorf("encryption key %q is not configured", id)
}

func (e *Engine) sealSnapshot(k Key, plain []byte) ([]byte, error) {
	keys, err := e.encryptionKeys(k.Tenant)
	if err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		return append([]byte{snapshotClear}, plain...), nil
	}
	box, err := encrypt(keys[0], k, 0, "snapshot", plain)
	if err != nil {
		return nil, err
	}
	out := append([]byte{snapshotSealed, byte(len(keys[0].ID))}, keys[0].ID...)
	return append(out, box...), nil
}

// openSnapshot returns the snapshot of rec in clear; nil: none.
func (e *Engine) openSnapshot(rec Record) ([]byte, error) {
	s := rec.Snapshot
	switch {
	case len(s) == 0:
		return nil, nil
	case s[0] == snapshotClear:
		return append([]byte{}, s[1:]...), nil
	case s[0] != snapshotSealed || len(s) < 2 || len(s) < 2+int(s[1]):
		return nil, unreadable(rec, fmt.Errorf("unknown form of snapshot"))
	}
	key, err := e.encryptionKey(rec.Key.Tenant, string(s[2:2+int(s[1])]))
	if err != nil {
		return nil, unreadable(rec, err)
	}
	plain, err := decrypt(key, rec.Key, 0, "snapshot", s[2+int(s[1]):])
	if err != nil {
		return nil, unreadable(rec, err)
	}
	return plain, nil
}

// Seal encrypts plain, which belongs to field of what is kept under k, by the first encryption key of k's tenant; id names
// that key. Where encryption is off id is "" and box is plain itself. Only Unseal with the same key, field and id opens it.
// It is for what others than the engine keep beside the records: the messages of package inbox.
func (e *Engine) Seal(k Key, field string, plain []byte) (id string, box []byte, err error) {
	keys, err := e.encryptionKeys(k.Tenant)
	if err != nil || len(keys) == 0 {
		return "", plain, err
	}
	box, err = encrypt(keys[0], k, 0, field, plain)
	return keys[0].ID, box, err
}

// Unseal opens what Seal made; with id "" it returns box, which was never encrypted. Code result_unreadable: the encryption
// key is not configured, or the box belongs elsewhere or was changed.
func (e *Engine) Unseal(k Key, field, id string, box []byte) ([]byte, error) {
	if id == "" {
		return box, nil
	}
	key, err := e.encryptionKey(k.Tenant, id)
	if err == nil {
		box, err = decrypt(key, k, 0, field, box)
	}
	if err != nil {
		return nil, &Error{Op: "open", Code: "result_unreadable", Err: err}
	}
	return box, nil
}

func encrypt(s Secret, k Key, attempt int64, field string, plain []byte) ([]byte, error) {
	out := make([]byte, saltSize+12, saltSize+12+len(plain)+16)
	_, _ = rand.Read(out)
	aead, err := sealer(s, k.Tenant, out[:saltSize])
	if err != nil {
		return nil, err
	}
	return aead.Seal(out, out[saltSize:], plain, additional(k, attempt, field)), nil
}

func decrypt(s Secret, k Key, attempt int64, field string, box []byte) ([]byte, error) {
	if len(box) < saltSize+12 {
		return nil, fmt.Errorf("ciphertext is cut short")
	}
	aead, err := sealer(s, k.Tenant, box[:saltSize])
	if err != nil {
		return nil, err
	}
	plain, err := aead.Open([]byte{}, box[saltSize:saltSize+12], box[saltSize+12:], additional(k, attempt, field))
	if err != nil {
		return nil, fmt.Errorf("key %q does not fit this row", s.ID)
	}
	return plain, nil
}

func sealer(s Secret, tenant string, salt []byte) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, s.Value, salt, "result\x00"+tenant, 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

func additional(k Key, attempt int64, field string) []byte {
	return fingerprint.Append(nil, sealFormat, k.Tenant, k.Operation, k.ID, strconv.FormatInt(attempt, 10), field)
}
