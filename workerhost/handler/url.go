package handler

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/workerhost/sender"
)

// longest is the timeout of a request if its context has no deadline.
const longest = 24 * time.Hour

// URL returns a handler that POSTs Job.JSON to an http or https URL, with the headers
// Qtop-Job-Id, Qtop-Job-Attempt and Idempotency-Key (the id of the first job of a chain of
// replays).
//
// A status of 2xx means that the job succeeded; 400, 410 and 422 fail it permanently. Every other
// status is a failed attempt with code HTTP_<status>; this includes redirects, which are not
// followed. Without a response the code is one of the codes of package sender. At most 4 KiB of
// the response body are kept for the text of a failure. If the host itself lacks what a connection needs, the job is
// handed back and no attempt is counted, unless another handler called this one (Shortage). The
// address checks and limits of package sender apply.
//
// A response may take as long as the attempt: an endpoint usually does its work before it responds.
// If the sender s bounds the time of a response header (Config.Headers), that counts too.
func URL(raw string, s *sender.Sender) (Handler, error) {
	u, err := url.Parse(raw)
	// No error text contains the URL, because a URL may contain a token.
	switch {
	case err != nil:
		return nil, badURL("the url cannot be parsed")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, badURL("the scheme of the url is neither http nor https")
	case u.Hostname() == "":
		return nil, badURL("the url has no host")
	case u.User != nil:
		return nil, badURL("the url holds a user or password")
	case sender.CheckURL(raw) != "":
		return nil, badURL("no request can be sent to the url: " + sender.CheckURL(raw))
	case s == nil:
		return nil, &queue.Error{Kind: queue.KindConfig, What: queue.Clean("a url needs a sender, and this host has none"), Do: queue.Clean("pass a sender to handler.URL")}
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
	err = &Failure{Code: code, Err: errText(withExcerpt(res.Detail, res.Excerpt)), shortage: res.Shortage}
	switch res.Status {
	case http.StatusBadRequest, http.StatusGone, http.StatusUnprocessableEntity:
		return Permanent(err)
	}
	return err
}

// withExcerpt appends the start of the response body to what, because it often explains the
// failure.
func withExcerpt(what, excerpt string) string {
	if excerpt == "" {
		return what
	}
	return what + ": " + excerpt
}
