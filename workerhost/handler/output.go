package handler

// The output of commands: only its end is kept, in bounded memory.

// maxOutput is how many bytes of output are kept. The last bytes are kept, because the end of an
// output explains a failure better than its start.
const maxOutput = 4 << 10

// tail is a writer that keeps the last maxOutput bytes, at a constant cost per
// byte. One goroutine writes; end is called after the last write.
type tail struct {
	buf []byte // up to twice maxOutput, so that few writes copy the kept bytes
	cut bool
}

// Write never fails: output must not block the command.
func (t *tail) Write(p []byte) (int, error) {
	n := len(p)
	if len(p) > maxOutput {
		p, t.buf, t.cut = p[len(p)-maxOutput:], t.buf[:0], true
	}
	if over := len(t.buf) + len(p) - 2*maxOutput; over > 0 {
		keep := t.buf[len(t.buf)-(maxOutput-len(p)):] // together with p exactly maxOutput bytes
		t.buf, t.cut = t.buf[:copy(t.buf, keep)], true
	}
	t.buf = append(t.buf, p...)
	return n, nil
}

// end returns the kept output, from the start of a character on, and whether earlier output was
// cut.
func (t *tail) end() (text string, cut bool) {
	b := t.buf
	if len(b) > maxOutput {
		b, t.cut = b[len(b)-maxOutput:], true
	}
	if t.cut {
		for n := 0; n < 3 && len(b) > 0 && b[0]&0xc0 == 0x80; n++ {
			b = b[1:]
		}
	}
	return string(b), t.cut
}
