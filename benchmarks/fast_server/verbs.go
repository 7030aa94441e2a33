package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const bucket = "bench"

var digest = regexp.MustCompile("^[0-9a-f]{64}$")

// ServeHTTP answers one request: the body is read to its end, then the answer waits for as long as
// a store at this distance would take, then the verb is done.
func (s *Store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, control) {
		s.control(w, r)
		return
	}
	flying := s.flying.Add(1)
	defer s.flying.Add(-1)
	query := r.URL.Query()
	key := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/"+bucket), "/")
	verb := verbOf(r.Method, query, key)
	body, err := readBody(r, verb != "UploadPart" && r.ContentLength <= keptBytesMax, s.verify.Load())
	if err != nil {
		return // the client hung up
	}
	if latency := s.latency.Load(); latency > 0 {
		time.Sleep(time.Duration(latency))
	}
	w.Header().Set("X-Amz-Request-Id", "BENCHMARK")
	later := &Later{ResponseWriter: w, status: http.StatusOK}
	s.mutex.Lock()
	s.seen.requests[verb]++
	s.seen.bodyBytes += body.size
	s.seen.flyingMost = max(s.seen.flyingMost, flying)
	s.do(verb, later, r, query, key, body)
	s.mutex.Unlock()
	later.send()
}

// Later holds an answer back until the store is unlocked: a client that reads slowly holds up
// nobody else.
type Later struct {
	http.ResponseWriter
	status int
	body   []byte
}

func (l *Later) WriteHeader(status int) { l.status = status }

func (l *Later) Write(more []byte) (int, error) {
	l.body = append(l.body, more...)
	return len(more), nil
}

func (l *Later) send() {
	if l.status != http.StatusOK {
		l.ResponseWriter.WriteHeader(l.status)
	}
	if len(l.body) > 0 {
		l.ResponseWriter.Write(l.body)
	}
}

var parameters = []struct{ method, parameter, verb string }{
	{"PUT", "partNumber", "UploadPart"},
	{"POST", "uploads", "CreateMultipartUpload"},
	{"POST", "uploadId", "CompleteMultipartUpload"},
	{"DELETE", "uploadId", "AbortMultipartUpload"},
	{"GET", "uploadId", "ListParts"},
	{"POST", "delete", "DeleteObjects"},
	{"GET", "uploads", "ListMultipartUploads"},
	{"GET", "list-type", "ListObjectsV2"},
	{"GET", "location", "GetBucketLocation"},
}

func verbOf(method string, query url.Values, key string) string {
	for _, one := range parameters {
		if method == one.method && query.Has(one.parameter) {
			return one.verb
		}
	}
	kind := "Object"
	if key == "" {
		kind = "Bucket"
	}
	return method[:1] + strings.ToLower(method[1:]) + kind
}

// do answers; under the mutex.
func (s *Store) do(
	verb string, w http.ResponseWriter, r *http.Request, query url.Values, key string, body Body,
) {
	switch verb {
	case "UploadPart":
		s.uploadPart(w, r, query, body)
	case "CompleteMultipartUpload":
		s.complete(w, r, query, body)
	case "CreateMultipartUpload":
		upload := s.create(key, metadataOf(r.Header))
		document(w, "InitiateMultipartUploadResult", "<Bucket>"+bucket+"</Bucket><Key>"+
			escape(key)+"</Key><UploadId>"+upload.id+"</UploadId>")
	case "AbortMultipartUpload":
		upload, open := s.uploads[query.Get("uploadId")]
		if !open {
			refuse(w, http.StatusNotFound, "NoSuchUpload")
			return
		}
		s.close(upload)
		w.WriteHeader(http.StatusNoContent)
	case "PutObject":
		s.putObject(w, r, key, body)
	case "GetObject", "HeadObject":
		s.getObject(w, r, key)
	case "DeleteObject":
		delete(s.objects, key)
		w.WriteHeader(http.StatusNoContent)
	case "DeleteObjects":
		s.deleteObjects(w, body)
	case "ListObjectsV2":
		s.listObjects(w, query)
	case "ListMultipartUploads":
		s.listUploads(w, query)
	case "ListParts":
		s.listParts(w, query)
	case "GetBucketLocation":
		document(w, "LocationConstraint", "")
	case "HeadBucket", "PutBucket":
		w.WriteHeader(http.StatusOK)
	default:
		s.seen.unknown[verb] = true
		refuse(w, http.StatusNotImplemented, "NotImplemented")
	}
}

func (s *Store) uploadPart(w http.ResponseWriter, r *http.Request, query url.Values, body Body) {
	s.note(r, body.size)
	upload, open := s.uploads[query.Get("uploadId")]
	number, err := strconv.Atoi(query.Get("partNumber"))
	if !open || err != nil {
		refuse(w, http.StatusNotFound, "NoSuchUpload")
		return
	}
	part := Part{Sum{body.size, body.crc}, partETag(number, body.size)}
	upload.set(number, part)
	echoChecksums(w, r)
	w.Header().Set("ETag", part.etag)
}

func (s *Store) complete(w http.ResponseWriter, r *http.Request, query url.Values, body Body) {
	upload, open := s.uploads[query.Get("uploadId")]
	if !open {
		refuse(w, http.StatusNotFound, "NoSuchUpload")
		return
	}
	if !s.may(w, r, upload.key) {
		return
	}
	made := &Object{key: upload.key, metadata: upload.metadata, modified: time.Now()}
	var parts []Part
	rest := body.bytes
	for {
		var text []byte
		if text, rest = between(rest, "<PartNumber>", "</PartNumber>"); text == nil {
			break
		}
		number, _ := strconv.Atoi(strings.TrimSpace(string(text)))
		part, there := upload.part(number)
		if !there {
			refuse(w, http.StatusBadRequest, "InvalidPart")
			return
		}
		parts = append(parts, part)
		made.size += part.size
		made.sums = append(made.sums, part.Sum)
	}
	if len(parts) == 0 {
		refuse(w, http.StatusBadRequest, "MalformedXML")
		return
	}
	made.etag = wholeETag(parts)
	s.close(upload)
	s.put(made)
	document(w, "CompleteMultipartUploadResult", "<Bucket>"+bucket+"</Bucket><Key>"+
		escape(made.key)+"</Key><ETag>"+escape(made.etag)+"</ETag>")
}

// may decides the conditions of a write, and refuses it where they do not hold.
func (s *Store) may(w http.ResponseWriter, r *http.Request, key string) bool {
	there := s.objects[key]
	wanted := r.Header.Get("If-Match")
	switch {
	case wanted != "" && there == nil:
		refuse(w, http.StatusNotFound, "NoSuchKey")
	case wanted != "" && strings.Trim(wanted, `"`) != strings.Trim(there.etag, `"`):
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
	case r.Header.Get("If-None-Match") == "*" && there != nil:
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
	default:
		return true
	}
	return false
}

func (s *Store) putObject(w http.ResponseWriter, r *http.Request, key string, body Body) {
	if !s.may(w, r, key) {
		return
	}
	if body.size > 1<<20 {
		s.note(r, body.size)
	}
	made := &Object{
		key: key, size: body.size, metadata: metadataOf(r.Header), modified: time.Now(),
		sums: []Sum{{body.size, body.crc}},
	}
	if body.size <= keptBytesMax {
		made.body = body.bytes
		if made.body == nil {
			made.body = []byte{}
		}
		made.etag = etagOf(body.bytes)
	} else {
		made.etag = partETag(int(s.made), body.size)
	}
	s.put(made)
	echoChecksums(w, r)
	w.Header().Set("ETag", made.etag)
}

func (s *Store) getObject(w http.ResponseWriter, r *http.Request, key string) {
	there := s.objects[key]
	if there == nil {
		refuse(w, http.StatusNotFound, "NoSuchKey")
		return
	}
	if wanted := r.Header.Get("If-Match"); wanted != "" &&
		strings.Trim(wanted, `"`) != strings.Trim(there.etag, `"`) {
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
		return
	}
	header := w.Header()
	header.Set("ETag", there.etag)
	header.Set("Accept-Ranges", "bytes")
	header.Set("Last-Modified", there.modified.UTC().Format(http.TimeFormat))
	header.Set("Content-Type", "binary/octet-stream")
	for name, value := range there.metadata {
		header.Set(name, value)
	}
	if r.Method == http.MethodHead || there.body == nil {
		header.Set("Content-Length", strconv.FormatInt(there.size, 10))
		if r.Method != http.MethodHead {
			header.Set("Content-Length", "0")
			w.WriteHeader(http.StatusNotFound)
		}
		return
	}
	http.ServeContent(w, r, "", there.modified, bytes.NewReader(there.body))
}

func (s *Store) deleteObjects(w http.ResponseWriter, body Body) {
	var asked struct {
		Quiet   bool
		Objects []struct{ Key string } `xml:"Object"`
	}
	if err := xml.Unmarshal(body.bytes, &asked); err != nil {
		refuse(w, http.StatusBadRequest, "MalformedXML")
		return
	}
	var told strings.Builder
	for _, one := range asked.Objects {
		delete(s.objects, one.Key)
		if !asked.Quiet {
			told.WriteString("<Deleted><Key>" + escape(one.Key) + "</Key></Deleted>")
		}
	}
	document(w, "DeleteResult", told.String())
}

// note remembers how a large body was sent.
func (s *Store) note(r *http.Request, size int64) {
	s.seen.partBytes = max(s.seen.partBytes, size)
	payload := r.Header.Get("X-Amz-Content-Sha256")
	switch {
	case digest.MatchString(payload):
		payload = "SHA-256"
	case payload == "":
		payload = "none"
	}
	s.seen.payloads[payload] = true
	for name := range r.Header {
		if sum, is := strings.CutPrefix(name, "X-Amz-Checksum-"); is && sum != "Algorithm" {
			s.seen.checksums[strings.ToUpper(sum)] = true
		}
	}
	if r.Header.Get("Content-Md5") != "" {
		s.seen.checksums["MD5"] = true
	}
}

func echoChecksums(w http.ResponseWriter, r *http.Request) {
	for name, values := range r.Header {
		if strings.HasPrefix(name, "X-Amz-Checksum-") && name != "X-Amz-Checksum-Algorithm" {
			w.Header()[name] = values
		}
	}
}

func between(text []byte, start, end string) ([]byte, []byte) {
	_, rest, found := bytes.Cut(text, []byte(start))
	if !found {
		return nil, nil
	}
	inner, rest, found := bytes.Cut(rest, []byte(end))
	if !found {
		return nil, nil
	}
	return inner, rest
}

func escape(text string) string { return html.EscapeString(text) }

const namespace = ` xmlns="http://s3.amazonaws.com/doc/2006-03-01/"`

func document(w http.ResponseWriter, root, content string) {
	send(w, http.StatusOK, fmt.Sprintf("<%s%s>%s</%s>", root, namespace, content, root))
}

func refuse(w http.ResponseWriter, status int, code string) {
	send(w, status, fmt.Sprintf(
		"<Error><Code>%s</Code><Message>%s</Message><RequestId>BENCHMARK</RequestId></Error>", code, code))
}

func send(w http.ResponseWriter, status int, text string) {
	text = `<?xml version="1.0" encoding="UTF-8"?>` + "\n" + text
	w.Header().Set("Content-Type", "application/xml")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	w.Write([]byte(text))
}
