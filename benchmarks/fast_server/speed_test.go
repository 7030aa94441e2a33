package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// How fast the server is, seen from Go's own client on the same machine:
//
//	go test -bench . -benchtime 3s
//
// It must be well above what any measured client does: 20,000 small requests and 3 GB a second on
// two cores that client and server share.

func ask(b *testing.B, client *http.Client, method, url string, body io.Reader) {
	request, _ := http.NewRequest(method, url, body)
	answer, err := client.Do(request)
	if err != nil {
		b.Fatal(err)
	}
	if answer.StatusCode != http.StatusOK {
		b.Fatal(answer.Status)
	}
	io.Copy(io.Discard, answer.Body)
	answer.Body.Close()
}

func start(b *testing.B) (*Store, string, *http.Client) {
	store := newStore()
	server := httptest.NewServer(store)
	b.Cleanup(server.Close)
	return store, server.URL, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
}

func BenchmarkComplete(b *testing.B) {
	store, url, client := start(b)
	keys := make([]string, b.N)
	for n := range keys {
		keys[n] = fmt.Sprintf("table/part-%08d", n)
	}
	seeded := store.seed(keys, 0)
	ids := seeded["ids"].([]string)
	body := []byte("<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>" +
		seeded["etag"].(string) + "</ETag></Part></CompleteMultipartUpload>")
	var next atomic.Int64
	b.SetParallelism(16)
	b.ResetTimer()
	b.RunParallel(func(more *testing.PB) {
		for more.Next() {
			n := next.Add(1) - 1
			at := fmt.Sprintf("%s/bench/%s?uploadId=%s", url, keys[n], ids[n])
			ask(b, client, "POST", at, bytes.NewReader(body))
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
}

func BenchmarkPart(b *testing.B) {
	store, url, client := start(b)
	id := store.seed([]string{"file"}, 0)["ids"].([]string)[0]
	part := make([]byte, 8<<20)
	b.SetBytes(int64(len(part)))
	b.ResetTimer()
	for n := 0; n < b.N; n++ {
		at := fmt.Sprintf("%s/bench/file?partNumber=%d&uploadId=%s", url, n%10000+1, id)
		ask(b, client, "PUT", at, bytes.NewReader(part))
	}
}
