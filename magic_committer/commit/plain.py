"""Reading a plain `.pendingset` quickly. Pure.

A job of 100,000 files has some 65 MB of pendingsets. The strict reader (`hadoop.formats`) makes an
object of each field and looks at each one by itself: 50 µs for a file, mostly to find that nothing
is wrong. Here one pass looks only for what is *plain*: a file as this library writes it, and Hadoop
too. Whatever is not plain, wrong or merely unusual, is left to the strict reader, and so are all
messages. **What is accepted here has exactly the meaning that the strict reader gives it**
(``tests/fuzz/test_plain_sets.py`` compares them).

A row is what the spool keeps of an upload, as JSON: see `magic_committer.commit.ready`.
"""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from magic_committer.commit.ready import (
    EXTRA_CHECKSUM,
    EXTRA_PART_BYTES,
    EXTRA_TOKEN,
    Row,
    is_algorithm,
    part_sizes,
)
from magic_committer.errors import FormatError
from magic_committer.hadoop import json
from magic_committer.hadoop.fields import (
    CHECKSUM_BYTES,
    EMPTY_STATISTICS,
    ETAG,
    JAVA_URI,
    UPLOAD_ID_CHARS_MAX,
)
from magic_committer.hadoop.formats import (
    PENDING_NAMES,
    PENDING_VERSION,
    PENDINGSET_BYTES_MAX,
    PENDINGSET_NAMES,
    PENDINGSET_VERSION,
    SIZE_ONLY,
)
from magic_committer.hadoop.json import INT64_MAX, INT64_MIN, Invalid
from magic_committer.hadoop.manifests import extra_of, is_manifest, manifest_at
from magic_committer.hadoop.paths import waiting_id
from magic_committer.stores.base import KEY_BYTES_MAX, PART_NUMBER_MAX

_ETAG_NAMES = ("etag", "checksumAlgorithm", "checksum")


class _NotPlainError(Exception):
    """The strict reader must look at the set."""


@dataclass(frozen=True, slots=True)
class PlainSet:
    """A `.pendingset`, as far as a commit needs it. ``task_id`` is that of its first upload."""

    job_id: str
    extra_data: Mapping[str, str]
    iostatistics: Mapping[str, Any]
    task_id: str
    rows: list[Row]


def plain_set(data: bytes, bucket: str) -> PlainSet | None:
    """Read a set, if it is plain and all its uploads are in the bucket. None: nothing is known
    about it."""
    parsed = json.parse_plain(data, PENDINGSET_BYTES_MAX)
    return None if parsed is None else _plain(parsed[0], bucket)


def is_plain(document: json.Document, data: bytes, bucket: str) -> bool:
    """Whether `plain_set` reads a document in the bytes that were just made of it."""
    return json.has_plain_texts(data) and _plain(document, bucket) is not None


def _plain(document: json.Document, bucket: str) -> PlainSet | None:
    if tuple(document) != PENDINGSET_NAMES:
        return None
    version, job_id, commits, extra, statistics = document.values()
    if type(version) is not int or version != PENDINGSET_VERSION:
        return None
    if type(job_id) is not str or type(commits) is not list or type(statistics) is not dict:
        return None
    if not _are_texts(extra):
        return None
    try:
        json.check_depth({"iostatistics": statistics})
        rows = [_row(commit, bucket, job_id) for commit in commits]
    except (_NotPlainError, FormatError, Invalid):
        return None
    if len({row[0] for row in rows}) != len(rows):
        return None
    return PlainSet(job_id, extra, statistics, commits[0]["taskId"] if commits else "", rows)


def waiting_set(data: bytes, key: str, bucket: str) -> PlainSet | None:
    """Read a task manifest as the set that it is, without an object for each file. None: it is
    another set."""
    if not is_manifest(key, bucket):
        return None
    manifest, home = manifest_at(data, key, bucket)
    rows: list[Row] = [
        (
            file.name,
            waiting_id(f"{home}/{file.name}", file.etag),
            "",
            1,
            file.size,
            file.etag or f"{SIZE_ONLY}{file.size}",
            None,
            [(file.etag, file.size, None)],
        )
        for file in manifest.files
    ]
    return PlainSet("", extra_of(manifest), manifest.statistics, manifest.attempt, rows)


def _are_texts(values: object) -> bool:
    if type(values) is not dict:
        return False
    for value in values.values():  # noqa: SIM110 (a generator takes twice as long)
        if type(value) is not str:
            return False
    return True


def _row(commit: Any, bucket: str, job_id: str) -> Row:
    """One upload. No text of the set has a control character, a backslash or a letter beyond ASCII
    (`json.parse_plain`)."""
    if type(commit) is not dict or tuple(commit) != PENDING_NAMES:
        raise _NotPlainError
    (
        version, filename, uri, upload_id, place, key, created, saved, date, job, task, text,
        etags, extra, length, statistics, count,
    ) = commit.values()  # fmt: skip
    if not (
        type(version) is type(created) is type(saved) is type(length) is type(count) is int
        and type(uri) is type(upload_id) is type(place) is type(key) is str
        and type(date) is type(job) is type(task) is type(text) is str
        and type(etags) is list
        and (filename is None or type(filename) is str)
        and version == PENDING_VERSION
        and place == bucket
        and job in ("", job_id)
        and statistics == EMPTY_STATISTICS
        and 0 < len(upload_id) <= UPLOAD_ID_CHARS_MAX
        and 0 < len(key) <= KEY_BYTES_MAX
        and key[0] != "/"
        and 0 <= length <= INT64_MAX
        and INT64_MIN <= created <= INT64_MAX
        and INT64_MIN <= saved <= INT64_MAX
        and 0 < count == len(etags) <= PART_NUMBER_MAX
        and JAVA_URI.match(uri)
        and _are_texts(extra)
    ):
        raise _NotPlainError
    token = extra.get(EXTRA_TOKEN, "")
    if not token:
        raise _NotPlainError  # Hadoop's: its object is known by its ETag, which the strict one adds
    sizes = part_sizes(extra.get(EXTRA_PART_BYTES, ""), count, length, "")
    algorithm, _, value = extra.get(EXTRA_CHECKSUM, "").partition(":")
    whole = (algorithm, value) if value and is_algorithm(algorithm) else None
    parts = [_part(etag, size) for etag, size in zip(etags, sizes, strict=True)]
    return key, upload_id, token, count, length, "", whole, parts


def _part(part: Any, size: int) -> tuple[str, int, tuple[str, str] | None]:
    if type(part) is not dict or tuple(part) != _ETAG_NAMES:
        raise _NotPlainError
    etag, algorithm, value = part.values()
    if type(etag) is not str or not ETAG.match(etag):
        raise _NotPlainError
    if algorithm is None and value is None:
        return etag, size, None
    if type(algorithm) is not str or type(value) is not str or not value:
        raise _NotPlainError
    try:
        bytes_ = len(a2b_base64(value, strict_mode=True))
    except ValueError:
        raise _NotPlainError from None
    if CHECKSUM_BYTES.get(algorithm) != bytes_:
        raise _NotPlainError
    return etag, size, (algorithm, value)
