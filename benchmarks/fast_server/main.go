// An S3 that answers at once, for benchmarks: parts are read, counted and forgotten.
//
// It must not favour any client. Heads and bodies are read by Go's own HTTP server; every body is
// read to its end through a buffer, as a server that stores it would. Signatures are not checked.
//
//	fast_server [--latency-ms 20] [--ca FILE]
//
// It listens on free ports of 127.0.0.1 and prints one line of JSON: {"http": URL, "https": URL}.
// With --ca there is HTTPS too: FILE gets the certificate of the authority that clients must trust.
// It ends when its standard input does, which its parent holds.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"runtime/debug"
)

// gcPercent: memory is cheap here, and the processor is shared with the client.
const gcPercent = 400

func main() {
	latency := flag.Float64("latency-ms", 0, "milliseconds that every answer waits")
	authority := flag.String("ca", "", "serve HTTPS too; write the authority's certificate here")
	flag.Parse()
	go endWithParent()
	debug.SetGCPercent(gcPercent)

	store := newStore()
	store.setLatency(*latency)
	urls := map[string]string{"http": listen("http", store, nil)}
	if *authority != "" {
		certificate, pem := makeCertificate()
		if err := os.WriteFile(*authority, pem, 0o644); err != nil {
			log.Fatal(err)
		}
		// S3 speaks no HTTP/2: whoever offers it gets HTTP/1.1.
		urls["https"] = listen("https", store, &tls.Config{
			Certificates: []tls.Certificate{certificate},
			NextProtos:   []string{"http/1.1"},
		})
	}
	line, _ := json.Marshal(urls)
	fmt.Println(string(line))
	select {}
}

func endWithParent() {
	io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// listen serves on a free port, and gives the URL.
func listen(scheme string, store *Store, secure *tls.Config) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	url := fmt.Sprintf("%s://%s", scheme, listener.Addr())
	if secure != nil {
		listener = tls.NewListener(listener, secure)
	}
	quiet := log.New(io.Discard, "", 0) // clients that hang up are none of our business
	server := &http.Server{
		Handler:      store,
		ErrorLog:     quiet,
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
		BaseContext:  func(net.Listener) context.Context { return context.Background() },
	}
	go func() { log.Fatal(server.Serve(listener)) }()
	return url
}
