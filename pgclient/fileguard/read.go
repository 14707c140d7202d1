package fileguard

// Reading files within a time limit: on a network file system that does not answer, every call on a file waits
// for as long as that lasts.

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"time"
)

// patience is how long Within and Read wait.
const patience = 10 * time.Second

// Errors of Read; Within returns ErrNoAnswer too.
var (
	ErrNoAnswer  = errors.New("its file system has not answered for 10 seconds")
	ErrIrregular = errors.New("not a regular file")
)

// Within returns what look returns, or ErrNoAnswer if that takes longer than 10 s. Nothing can end a call on
// a file, so look goes on until the file system answers: Within is for what a program does once, not for what
// it repeats.
func Within[T any](look func() (T, error)) (T, error) { return within(patience, look) }

func within[T any](limit time.Duration, look func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		value, err := look()
		done <- answer{value, err}
	}()
	select {
	case a := <-done:
		return a.value, a.err
	case <-time.After(limit):
		var none T
		return none, ErrNoAnswer
	}
}

// Read returns the content of a regular file, at most its first most bytes, and what the system says of it.
// Both belong to the same file even if the path is replaced meanwhile, because the file is opened once. If
// reading fails, Read returns the part before the error. It has the time limit of Within.
func Read(path string, most int64) ([]byte, fs.FileInfo, error) {
	type file struct {
		text []byte
		info fs.FileInfo
	}
	f, err := Within(func() (f file, err error) {
		f.text, f.info, err = ReadPatiently(path, most)
		return f, err
	})
	return f.text, f.info, err
}

// ReadPatiently is like Read, without the time limit.
func ReadPatiently(path string, most int64) ([]byte, fs.FileInfo, error) {
	// Opening a pipe without a writer would block.
	if info, err := os.Stat(path); err != nil {
		return nil, nil, err
	} else if !info.Mode().IsRegular() {
		return nil, nil, ErrIrregular
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, most))
	return text, info, err
}
