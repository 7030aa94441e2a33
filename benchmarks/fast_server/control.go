package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// control is where the parent asks; no bucket has this name.
//
//	GET  /-/reset?verify=0&latency_ms=20   forget all; gives the facts (empty)
//	GET  /-/latency?ms=20                  keep all; answers wait so long from now on
//	GET  /-/facts[?forget=1][&named=1000]  what was asked since, and so many of the objects; then
//	                                       forget the counts
//	POST /-/seed?size=1000                 open an upload with one part for each line (a key) of
//	                                       the body; gives {"ids": […], "etag": …}
const control = "/-/"

const (
	namedMost = 1000 // objects that facts name, if not told otherwise
	seedBytes = 1000
)

func (s *Store) control(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	switch strings.TrimPrefix(r.URL.Path, control) {
	case "reset":
		s.reset()
		s.verify.Store(query.Get("verify") == "1")
		s.setLatency(number(query.Get("latency_ms")))
		answer(w, s.facts(false, 0))
	case "latency":
		s.setLatency(number(query.Get("ms")))
		answer(w, map[string]any{})
	case "facts":
		named := namedMost
		if query.Has("named") {
			named = int(number(query.Get("named")))
		}
		answer(w, s.facts(query.Get("forget") == "1", named))
	case "seed":
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		answer(w, s.seed(strings.Fields(string(text)), int64(number(query.Get("size")))))
	default:
		refuse(w, http.StatusNotFound, "NoSuchControl")
	}
}

func number(text string) float64 {
	value, _ := strconv.ParseFloat(text, 64)
	return value
}

func answer(w http.ResponseWriter, what any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(what)
}

func (s *Store) facts(forget bool, most int) map[string]any {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	named := map[string]any{}
	for key, one := range s.objects {
		if len(named) == most {
			break
		}
		sums := [][]any{}
		if s.verify.Load() {
			for _, sum := range one.sums {
				sums = append(sums, []any{sum.size, fmt.Sprintf("%08x", sum.crc)})
			}
		}
		named[key] = map[string]any{"size": one.size, "parts": sums}
	}
	told := map[string]any{
		"requests":      s.seen.requests,
		"part_bytes":    s.seen.partBytes,
		"body_bytes":    s.seen.bodyBytes,
		"payloads":      names(s.seen.payloads),
		"checksums":     names(s.seen.checksums),
		"unknown":       names(s.seen.unknown),
		"in_flight_max": s.seen.flyingMost,
		"open_uploads":  len(s.uploads),
		"object_count":  len(s.objects),
		"objects":       named,
	}
	if forget {
		s.forget()
	}
	return told
}

func names(of map[string]bool) []string {
	found := []string{}
	for name := range of {
		found = append(found, name)
	}
	return found
}

func (s *Store) seed(keys []string, size int64) map[string]any {
	if size <= 0 {
		size = seedBytes
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	ids := make([]string, len(keys))
	part := Part{Sum{size, 0}, partETag(1, size)}
	for at, key := range keys {
		upload := s.create(key, nil)
		upload.set(1, part)
		ids[at] = upload.id
	}
	return map[string]any{"ids": ids, "etag": part.etag}
}
