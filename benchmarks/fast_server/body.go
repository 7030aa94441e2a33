package main

import (
	"bufio"
	"hash"
	"hash/crc32"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

const bufferBytes = 1 << 20

var buffers = sync.Pool{New: func() any { return make([]byte, bufferBytes) }}
var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, bufferBytes) }}

// Body is what a request's body was, without its framing.
type Body struct {
	size  int64
	crc   uint32 // of all bytes, where it was asked for
	bytes []byte // where they were to be kept
}

// readBody reads a body to its end. Where it is framed as S3 frames streamed bodies (aws-chunked),
// the framing is taken off, and trailers are put into the request's headers.
func readBody(r *http.Request, keep, verify bool) (Body, error) {
	var got Body
	var sum hash.Hash32
	if verify {
		sum = crc32.NewIEEE()
	}
	take := func(piece []byte) {
		got.size += int64(len(piece))
		if verify {
			sum.Write(piece)
		}
		if keep {
			got.bytes = append(got.bytes, piece...)
		}
	}
	var err error
	if strings.Contains(r.Header.Get("Content-Encoding"), "aws-chunked") {
		err = readChunks(r, take)
	} else {
		if keep && r.ContentLength > 0 {
			got.bytes = make([]byte, 0, r.ContentLength)
		}
		err = readPlain(r.Body, take)
	}
	if verify {
		got.crc = sum.Sum32()
	}
	return got, err
}

func readPlain(from io.Reader, take func([]byte)) error {
	buffer := buffers.Get().([]byte)
	defer buffers.Put(buffer)
	for {
		n, err := from.Read(buffer)
		take(buffer[:n])
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// readChunks reads `size[;extension]\r\nbytes\r\n` until a size of 0, then trailers.
func readChunks(r *http.Request, take func([]byte)) error {
	from := readers.Get().(*bufio.Reader)
	defer readers.Put(from)
	from.Reset(r.Body)
	for {
		line, err := readLine(from)
		if err != nil {
			return err
		}
		text, _, _ := strings.Cut(line, ";")
		left, err := strconv.ParseInt(text, 16, 64)
		if err != nil {
			return err
		}
		if left == 0 {
			return readTrailers(r, from)
		}
		for left > 0 {
			if from.Buffered() == 0 {
				if _, err := from.Peek(1); err != nil {
					return err
				}
			}
			piece, _ := from.Peek(int(min(left, int64(from.Buffered()))))
			take(piece)
			from.Discard(len(piece))
			left -= int64(len(piece))
		}
		if _, err := readLine(from); err != nil {
			return err
		}
	}
}

func readTrailers(r *http.Request, from *bufio.Reader) error {
	for {
		line, err := readLine(from)
		if line == "" || err != nil {
			if err == io.EOF || err == io.ErrUnexpectedEOF {
				return nil // the empty line at the end is not always there
			}
			return err
		}
		if name, value, found := strings.Cut(line, ":"); found {
			r.Header.Set(name, strings.TrimSpace(value))
		}
	}
}

func readLine(from *bufio.Reader) (string, error) {
	line, err := from.ReadString('\n')
	return strings.TrimRight(line, "\r\n"), err
}
