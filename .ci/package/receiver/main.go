// Command receiver receives webhooks in .ci/package/try.sh. It answers 204, or 503 while the file
// FOLDER/down exists, and appends the number n of each accepted body to FOLDER/delivered. It
// writes its address into FOLDER/address and runs until it is killed.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: receiver FOLDER")
	}
	if err := serve(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func serve(folder string) error {
	ledger, err := os.OpenFile(filepath.Join(folder, "delivered"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "address"), []byte(listener.Addr().String()), 0o644); err != nil {
		return err
	}
	server := &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := os.Stat(filepath.Join(folder, "down")); err == nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		var body struct {
			N int `json:"n"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		// One write per line, so that lines of concurrent requests are not mixed.
		if _, err := fmt.Fprintln(ledger, body.N); err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})}
	return server.Serve(listener)
}
