package main

import (
	"crypto/md5"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"net/http"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	keptBytesMax = 64 << 20 // larger objects are counted and forgotten
	md5BytesMax  = 64 << 10 // ETags of larger ones are made in a cheaper way
)

// Object is what a key holds; body is nil where it was not kept.
type Object struct {
	key      string
	size     int64
	etag     string
	body     []byte
	metadata map[string]string
	modified time.Time
	sums     []Sum
}

// Sum is the length and the CRC32 of one part, where the round verifies.
type Sum struct {
	size int64
	crc  uint32
}

// Part is one part of an open upload.
type Part struct {
	Sum
	etag string
}

// Upload is an open upload; parts are few, so they are kept in a list.
type Upload struct {
	key       string
	id        string
	metadata  map[string]string
	initiated time.Time
	numbers   []int
	parts     []Part
	gone      bool
}

// Store is one bucket, and what was asked of it.
type Store struct {
	mutex   sync.Mutex
	latency atomic.Int64
	flying  atomic.Int64
	verify  atomic.Bool

	objects map[string]*Object
	uploads map[string]*Upload
	keys    keyList
	open    uploadList
	made    uint64
	seen    Seen
}

// Seen is what was asked since the last reset.
type Seen struct {
	requests   map[string]int
	partBytes  int64
	bodyBytes  int64
	payloads   map[string]bool
	checksums  map[string]bool
	unknown    map[string]bool
	flyingMost int64
}

func newStore() *Store {
	store := &Store{}
	store.reset()
	return store
}

func (s *Store) reset() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.objects, s.uploads = map[string]*Object{}, map[string]*Upload{}
	s.keys, s.open, s.made = keyList{}, uploadList{}, 0
	s.forget()
}

func (s *Store) forget() {
	s.seen = Seen{
		requests: map[string]int{},
		payloads: map[string]bool{}, checksums: map[string]bool{}, unknown: map[string]bool{},
	}
}

func (s *Store) setLatency(milliseconds float64) {
	s.latency.Store(int64(milliseconds * float64(time.Millisecond)))
}

// put keeps an object. Under the mutex.
func (s *Store) put(object *Object) {
	if _, there := s.objects[object.key]; !there {
		s.keys.add(object.key)
	}
	s.objects[object.key] = object
}

// create opens an upload. Under the mutex.
func (s *Store) create(key string, metadata map[string]string) *Upload {
	s.made++
	id := fmt.Sprintf("%016x-benchmark-%032x", s.made, s.made*0x9E3779B97F4A7C15)
	upload := &Upload{key: key, id: id, metadata: metadata, initiated: time.Now()}
	s.uploads[id] = upload
	s.open.add(upload)
	return upload
}

// close ends an upload. Under the mutex.
func (s *Store) close(upload *Upload) {
	upload.gone = true
	delete(s.uploads, upload.id)
}

func (u *Upload) set(number int, part Part) {
	at := sort.SearchInts(u.numbers, number)
	if at < len(u.numbers) && u.numbers[at] == number {
		u.parts[at] = part
		return
	}
	u.numbers = append(u.numbers, 0)
	u.parts = append(u.parts, Part{})
	copy(u.numbers[at+1:], u.numbers[at:])
	copy(u.parts[at+1:], u.parts[at:])
	u.numbers[at], u.parts[at] = number, part
}

func (u *Upload) part(number int) (Part, bool) {
	at := sort.SearchInts(u.numbers, number)
	if at < len(u.numbers) && u.numbers[at] == number {
		return u.parts[at], true
	}
	return Part{}, false
}

func etagOf(body []byte) string {
	if len(body) <= md5BytesMax {
		sum := md5.Sum(body)
		return `"` + hex.EncodeToString(sum[:]) + `"`
	}
	crc := crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli))
	return fmt.Sprintf(`"%016x%016x"`, len(body), crc)
}

// partETag is one of 32 digits: the part's bytes are not looked at.
func partETag(number int, size int64) string {
	var raw [16]byte
	binary.BigEndian.PutUint64(raw[:8], uint64(size))
	binary.BigEndian.PutUint64(raw[8:], uint64(number))
	return `"` + hex.EncodeToString(raw[:]) + `"`
}

// wholeETag is that of a completed upload: its form is S3's.
func wholeETag(parts []Part) string {
	sum := md5.New()
	for _, part := range parts {
		sum.Write([]byte(part.etag))
	}
	return fmt.Sprintf(`"%x-%d"`, sum.Sum(nil), len(parts))
}

func metadataOf(header http.Header) map[string]string {
	var found map[string]string
	for name, values := range header {
		if strings.HasPrefix(name, "X-Amz-Meta-") {
			if found == nil {
				found = map[string]string{}
			}
			found[name] = values[0]
		}
	}
	return found
}

// Ordered lists ----------------------------------------------------------------------------------
//
// New entries wait in a list of their own until somebody lists: a write costs no sorting, and a
// listing sorts only what is new. Entries that are gone are dropped then.

type keyList struct{ sorted, fresh []string }

func (l *keyList) add(key string) { l.fresh = append(l.fresh, key) }

// settle gives the keys that are there, in order. A key that went and came back stands once.
func (l *keyList) settle(there map[string]*Object) []string {
	if len(l.fresh) > 0 || len(l.sorted) > 2*len(there)+1000 {
		sort.Strings(l.fresh)
		merged := make([]string, 0, len(there))
		a, b := l.sorted, l.fresh
		for len(a) > 0 || len(b) > 0 {
			var next string
			if len(b) == 0 || (len(a) > 0 && a[0] <= b[0]) {
				next, a = a[0], a[1:]
			} else {
				next, b = b[0], b[1:]
			}
			if _, is := there[next]; is && (len(merged) == 0 || merged[len(merged)-1] != next) {
				merged = append(merged, next)
			}
		}
		l.sorted, l.fresh = merged, nil
	}
	return l.sorted
}

type uploadList struct{ sorted, fresh []*Upload }

func (l *uploadList) add(upload *Upload) { l.fresh = append(l.fresh, upload) }

func before(a, b *Upload) bool { return a.key < b.key || (a.key == b.key && a.id < b.id) }

func (l *uploadList) settle() []*Upload {
	if len(l.fresh) > 0 {
		sort.Slice(l.fresh, func(i, j int) bool { return before(l.fresh[i], l.fresh[j]) })
		merged := make([]*Upload, 0, len(l.sorted)+len(l.fresh))
		a, b := l.sorted, l.fresh
		for len(a) > 0 || len(b) > 0 {
			var next *Upload
			if len(b) == 0 || (len(a) > 0 && before(a[0], b[0])) {
				next, a = a[0], a[1:]
			} else {
				next, b = b[0], b[1:]
			}
			if !next.gone {
				merged = append(merged, next)
			}
		}
		l.sorted, l.fresh = merged, nil
	}
	return l.sorted
}
