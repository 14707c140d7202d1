package handler

// This file keeps the end of what a command says, at the same cost however much
// it says.

// maxOutput in bytes; the end tells more about a failure than the start.
const maxOutput = 4 << 10

// tail keeps the last maxOutput bytes written to it. One goroutine writes, and
// end is called when it is done.
type tail struct {
	buf []byte // up to twice maxOutput, so that few writes move it
	cut bool
}

// Write takes everything: a command must not be blocked by its own noise.
func (t *tail) Write(p []byte) (int, error) {
	n := len(p)
	if len(p) > maxOutput {
		p, t.buf, t.cut = p[len(p)-maxOutput:], t.buf[:0], true
	}
	if over := len(t.buf) + len(p) - 2*maxOutput; over > 0 {
		keep := t.buf[len(t.buf)-(maxOutput-len(p)):] // with p exactly maxOutput
		t.buf, t.cut = t.buf[:copy(t.buf, keep)], true
	}
	t.buf = append(t.buf, p...)
	return n, nil
}

// end is what is kept, from the start of a character, and whether more was said.
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
