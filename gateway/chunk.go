package gateway

// chunkScan follows a chunked body byte by byte (row SEC54). It lets pass what has one reading only: lines end with
// CR LF, a size is 1 to 15 hex digits directly followed by CR or ";", extensions are at most 4 KiB in all.
type chunkScan struct {
	state   chunkState
	left    uint64 // bytes of the current chunk's data still to come
	digits  int
	ext     int // bytes of extensions so far, of all chunks
	trailer int // bytes of the trailer section so far
	max     int // bytes of the trailer section allowed
}

type chunkState uint8

const (
	chunkSize    chunkState = iota
	chunkExt                // after ";", to the end of the line
	chunkSizeLF             // after the CR of a size line
	chunkData               // left bytes
	chunkDataCR             // after the data
	chunkDataLF             //
	chunkTrailer            // start of a trailer line
	chunkName               // in a trailer's name
	chunkValue              // in a trailer's value
	chunkValueLF            // after the CR of a trailer line
	chunkEndLF              // after the CR of the empty line
)

const maxChunkExt = 4 << 10

// feed looks at the next bytes. n of them belong to the body and are right; done: the body ended with them; !ok: the
// byte after them must not be passed on.
func (s *chunkScan) feed(b []byte) (n int, done, ok bool) {
	for n < len(b) {
		if s.state == chunkData {
			take := min(s.left, uint64(len(b)-n))
			n += int(take)
			if s.left -= take; s.left == 0 {
				s.state = chunkDataCR
			}
			continue
		}
		if !s.step(b[n]) {
			return n, false, false
		}
		n++
		if s.state == chunkEndLF && b[n-1] == '\n' {
			return n, true, true
		}
	}
	return n, false, true
}

// step takes one byte of the framing. The last one, LF in chunkEndLF, leaves the state as it is.
func (s *chunkScan) step(c byte) bool {
	switch s.state {
	case chunkSize:
		if v, hex := hexValue(c); hex && s.digits < 15 {
			s.digits++
			s.left = s.left<<4 | uint64(v)
			return true
		}
		switch {
		case s.digits == 0:
			return false
		case c == ';':
			s.state = chunkExt
			return true
		case c == '\r':
			s.state = chunkSizeLF
			return true
		}
		return false
	case chunkExt:
		if s.ext++; s.ext > maxChunkExt {
			return false
		}
		if c == '\r' {
			s.state = chunkSizeLF
			return true
		}
		return validValueByte(c)
	case chunkSizeLF:
		s.digits = 0
		if s.state = chunkData; s.left == 0 {
			s.state = chunkTrailer
		}
		return c == '\n'
	case chunkDataCR:
		s.state = chunkDataLF
		return c == '\r'
	case chunkDataLF:
		s.state = chunkSize
		return c == '\n'
	case chunkEndLF:
		return c == '\n'
	}
	return s.stepTrailer(c)
}

func (s *chunkScan) stepTrailer(c byte) bool {
	if s.trailer++; s.trailer > s.max {
		return false
	}
	switch s.state {
	case chunkTrailer:
		if c == '\r' {
			s.state = chunkEndLF
			return true
		}
		s.state = chunkName
		return isToken(c)
	case chunkName:
		if c == ':' {
			s.state = chunkValue
			return true
		}
		return isToken(c)
	case chunkValue:
		if c == '\r' {
			s.state = chunkValueLF
			return true
		}
		return validValueByte(c)
	default: // chunkValueLF
		s.state = chunkTrailer
		return c == '\n'
	}
}

func validValueByte(c byte) bool { return (c >= ' ' && c != 0x7f) || c == '\t' }

func hexValue(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}
