//go:build !linux

package workerhost_test

import (
	"net/http"
	"time"
)

func arrived(*http.Request) time.Time { return time.Now() }
