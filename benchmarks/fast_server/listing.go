package main

import (
	"net/http"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"time"
)

const pageMost = 1000

// Page is a listing that is being made: entries and common prefixes, up to a limit.
type Page struct {
	prefix, delimiter string
	encode            bool
	limit, count      int
	more              bool
	text              strings.Builder
	lastPrefix        string
}

func newPage(query url.Values, limit string) *Page {
	page := &Page{
		prefix:    query.Get("prefix"),
		delimiter: query.Get("delimiter"),
		encode:    query.Get("encoding-type") == "url",
		limit:     pageMost,
	}
	if asked, err := strconv.Atoi(query.Get(limit)); err == nil && asked >= 0 {
		page.limit = min(asked, pageMost)
	}
	return page
}

// common gives the common prefix that a key falls under, if any.
func (p *Page) common(key string) string {
	if p.delimiter == "" {
		return ""
	}
	if at := strings.Index(key[len(p.prefix):], p.delimiter); at >= 0 {
		return key[:len(p.prefix)+at+len(p.delimiter)]
	}
	return ""
}

// room is false where the page is full; there is more then.
func (p *Page) room() bool {
	if p.count < p.limit {
		return true
	}
	p.more = true
	return false
}

func (p *Page) addPrefix(common string) {
	p.count++
	p.lastPrefix = common
	p.text.WriteString("<CommonPrefixes><Prefix>")
	p.text.WriteString(p.name(common))
	p.text.WriteString("</Prefix></CommonPrefixes>")
}

func (p *Page) name(key string) string {
	if p.encode {
		return strings.ReplaceAll(url.QueryEscape(key), "%2F", "/")
	}
	return escape(key)
}

func (p *Page) field(name, value string) {
	p.text.WriteString("<" + name + ">" + value + "</" + name + ">")
}

func (p *Page) end() {
	p.field("Prefix", p.name(p.prefix))
	if p.delimiter != "" {
		p.field("Delimiter", p.name(p.delimiter))
	}
	if p.encode {
		p.field("EncodingType", "url")
	}
	p.field("IsTruncated", strconv.FormatBool(p.more))
}

func (s *Store) listObjects(w http.ResponseWriter, query url.Values) {
	page := newPage(query, "max-keys")
	after := query.Get("start-after")
	if token := query.Get("continuation-token"); token != "" {
		after = token
	}
	keys := s.keys.settle(s.objects)
	last := ""
	for at := sort.SearchStrings(keys, max(page.prefix, after)); at < len(keys); at++ {
		key := keys[at]
		object, there := s.objects[key]
		if !strings.HasPrefix(key, page.prefix) {
			break
		}
		common := page.common(key)
		if !there || key <= after || (common != "" && (common == page.lastPrefix || common <= after)) {
			continue
		}
		if !page.room() {
			break
		}
		if common != "" {
			page.addPrefix(common)
			last = common
			continue
		}
		page.count++
		last = key
		page.text.WriteString("<Contents>")
		page.field("Key", page.name(key))
		page.field("LastModified", iso(object.modified))
		page.field("ETag", escape(object.etag))
		page.field("Size", strconv.FormatInt(object.size, 10))
		page.text.WriteString("<StorageClass>STANDARD</StorageClass></Contents>")
	}
	page.end()
	page.field("KeyCount", strconv.Itoa(page.count))
	page.field("MaxKeys", strconv.Itoa(page.limit))
	if page.more {
		page.field("NextContinuationToken", escape(last))
	}
	document(w, "ListBucketResult", "<Name>"+bucket+"</Name>"+page.text.String())
}

func (s *Store) listUploads(w http.ResponseWriter, query url.Values) {
	page := newPage(query, "max-uploads")
	key, id := query.Get("key-marker"), query.Get("upload-id-marker")
	uploads := s.open.settle()
	start := sort.Search(len(uploads), func(i int) bool {
		one := uploads[i]
		return one.key >= page.prefix && (one.key > key || (one.key == key && id != "" && one.id > id))
	})
	lastKey, lastID := "", ""
	for _, one := range uploads[start:] {
		if !strings.HasPrefix(one.key, page.prefix) {
			break
		}
		common := page.common(one.key)
		if one.gone || (common != "" && (common == page.lastPrefix || common <= key)) {
			continue
		}
		if !page.room() {
			break
		}
		if common != "" {
			page.addPrefix(common)
			lastKey, lastID = common, ""
			continue
		}
		page.count++
		lastKey, lastID = one.key, one.id
		page.text.WriteString("<Upload>")
		page.field("Key", page.name(one.key))
		page.field("UploadId", one.id)
		page.text.WriteString("<StorageClass>STANDARD</StorageClass>")
		page.field("Initiated", iso(one.initiated))
		page.text.WriteString("</Upload>")
	}
	page.end()
	page.field("MaxUploads", strconv.Itoa(page.limit))
	if page.more {
		page.field("NextKeyMarker", page.name(lastKey))
		page.field("NextUploadIdMarker", lastID)
	}
	document(w, "ListMultipartUploadsResult", "<Bucket>"+bucket+"</Bucket>"+page.text.String())
}

func (s *Store) listParts(w http.ResponseWriter, query url.Values) {
	upload, open := s.uploads[query.Get("uploadId")]
	if !open {
		refuse(w, http.StatusNotFound, "NoSuchUpload")
		return
	}
	marker, _ := strconv.Atoi(query.Get("part-number-marker"))
	page := newPage(query, "max-parts")
	last := 0
	for at, number := range upload.numbers {
		if number <= marker {
			continue
		}
		if !page.room() {
			break
		}
		page.count++
		last = number
		page.text.WriteString("<Part>")
		page.field("PartNumber", strconv.Itoa(number))
		page.field("ETag", escape(upload.parts[at].etag))
		page.field("Size", strconv.FormatInt(upload.parts[at].size, 10))
		page.field("LastModified", iso(upload.initiated))
		page.text.WriteString("</Part>")
	}
	page.field("IsTruncated", strconv.FormatBool(page.more))
	page.field("Key", escape(upload.key))
	page.field("UploadId", upload.id)
	page.field("NextPartNumberMarker", strconv.Itoa(last))
	document(w, "ListPartsResult", "<Bucket>"+bucket+"</Bucket>"+page.text.String())
}

func iso(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000Z") }
