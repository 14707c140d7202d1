package handler

// This file binds a job kind to an HTTP endpoint. The request itself is package
// sender's: its address check, its limits and its codes hold here as well.

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/workerhost/sender"
)

// longest stands in for the deadline that a context without one does not have.
const longest = 24 * time.Hour

// URL is a handler that POSTs Job.JSON to an http or https URL, with the headers
// Qtop-Job-Id, Qtop-Job-Attempt and Idempotency-Key, which is the id of the first job
// of a line of replays.
//
// 2xx means succeeded, 400, 410 and 422 failed for good. Every other status is a
// failed try with code HTTP_<status>, redirects too: none is followed. Without an
// answer the code is one of package sender's. The start of the answer is kept for
// the text of a failure, at most 4 KiB.
//
// The answer's header may take as long as s allows (Config.Headers, 15 s unless
// told): an endpoint does its work before it answers, so give it a sender of its
// own, with the longest time of a try.
func URL(raw string, s *sender.Sender) (Handler, error) {
	u, err := url.Parse(raw)
	// No message repeats the URL: it may carry a token.
	switch {
	case err != nil:
		return nil, badURL("the url cannot be parsed")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, badURL("the scheme of the url is neither http nor https")
	case u.Hostname() == "":
		return nil, badURL("the url has no host")
	case s == nil:
		return nil, badURL("this host cannot make requests")
	}
	return &endpoint{url: raw, sender: s}, nil
}

func badURL(what string) error {
	return &queue.Error{Kind: queue.KindConfig, What: queue.Clean(what), Do: queue.Clean("use https://HOST/PATH")}
}

type endpoint struct {
	url    string
	sender *sender.Sender
}

// Handle makes one request.
func (e *endpoint) Handle(ctx context.Context, job Job) error {
	body, err := job.JSON()
	if err != nil {
		return err
	}
	timeout := longest
	if end, ok := ctx.Deadline(); ok {
		timeout = time.Until(end)
	}
	res := e.sender.Send(ctx, sender.Request{
		URL: e.url, ID: job.ID, Body: body, Timeout: timeout,
		Header: map[string]string{
			"Idempotency-Key":  job.RootID,
			"Qtop-Job-Id":      job.ID,
			"Qtop-Job-Attempt": strconv.Itoa(job.Attempt),
		},
	})
	if res.Delivered {
		return nil
	}
	code := res.Code
	if res.Status == 0 && ctx.Err() != nil {
		code = endCode(ctx)
	}
	err = Coded(code, errText(withExcerpt(res.Detail, res.Excerpt)))
	switch res.Status {
	case http.StatusBadRequest, http.StatusGone, http.StatusUnprocessableEntity:
		return Permanent(err)
	}
	return err
}

// withExcerpt keeps the start of an answer, where it says what is wrong.
func withExcerpt(what, excerpt string) string {
	if excerpt == "" {
		return what
	}
	return what + ": " + excerpt
}
