// Benchmarks of Sender, and for comparison of a bare net/http client with the same pool and
// receiver.
package sender

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"
)

func BenchmarkPost(b *testing.B) {
	const inFlight = 64
	srv := server(b, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	body := bytes.Repeat([]byte("x"), 500)
	run := func(b *testing.B, post func() bool) {
		b.ReportAllocs()
		work := make(chan struct{}, inFlight)
		var all sync.WaitGroup
		for range inFlight {
			all.Go(func() {
				for range work {
					if !post() {
						b.Error("not delivered")
					}
				}
			})
		}
		b.ResetTimer()
		for range b.N {
			work <- struct{}{}
		}
		close(work)
		all.Wait()
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "posts/s")
	}
	b.Run("bare", func(b *testing.B) {
		transport := &http.Transport{MaxIdleConns: idleTotalFactor * inFlight, MaxIdleConnsPerHost: inFlight, DisableCompression: true}
		client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
		defer transport.CloseIdleConnections()
		run(b, func() bool {
			resp, err := client.Post(srv.URL, "application/json", bytes.NewReader(body))
			if err != nil {
				return false
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
		})
	})
	for name, secrets := range map[string][][]byte{"unsigned": nil, "signed": {sampleKey()}} {
		b.Run(name, func(b *testing.B) {
			s := newSender(b, Config{Allow: loopback(), Concurrency: inFlight})
			run(b, func() bool {
				return s.Send(context.Background(), Request{URL: srv.URL, ID: "evt_1", Body: body, Secrets: secrets, Timeout: 10 * time.Second}).Delivered
			})
		})
	}
}
