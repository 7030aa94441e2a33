"""Uploads: what becomes visible when, and what Complete refuses."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from magic_committer.errors import InvalidRequest, NotFound, PreconditionFailed, StoreError
from magic_committer.runtime.threads import ThreadPool
from magic_committer.stores import checksum as checksums
from magic_committer.stores.base import (
    PART_BYTES_MIN,
    PART_NUMBER_MAX,
    AbortUpload,
    Answer,
    Ask,
    Attributes,
    ChecksumAlgorithm,
    FileSlice,
    FindUpload,
    Head,
    ListParts,
    ObjectInfo,
    ObjectSlice,
    ObjectStore,
    Part,
    UploadPage,
    Written,
    ask_by_verb,
    many_of,
    objects,
    uploads,
)

FULL = bytes(range(256)) * (PART_BYTES_MIN // 256)
"""The smallest part that need not be the last."""
TAIL = b"tail"


def _create(
    store: ObjectStore, key: str, checksum: ChecksumAlgorithm | None = None, **metadata: str
) -> str:
    attributes = Attributes(metadata=metadata)
    return store.create_upload(key, attributes=attributes, checksum=checksum).upload_id


def _part(
    store: ObjectStore,
    key: str,
    upload_id: str,
    number: int,
    body: bytes,
    checksum: ChecksumAlgorithm | None = None,
) -> Part:
    given = checksums.of(checksum, body) if checksum else None
    return store.put_part(key, upload_id, number, memoryview(body), checksum=given)


def _pending(
    store: ObjectStore, key: str, checksum: ChecksumAlgorithm | None = None
) -> tuple[str, list[Part]]:
    """An upload of two parts, ready to complete."""
    upload_id = _create(store, key, checksum)
    parts = [_part(store, key, upload_id, n, b, checksum) for n, b in ((1, FULL), (2, TAIL))]
    return upload_id, parts


def _open(store: ObjectStore, prefix: str) -> list[str]:
    return [one.upload_id for one in uploads(store, prefix)]


def _body(store: ObjectStore, key: str) -> bytes:
    return store.get(key, max_bytes=2 * len(FULL) * 4).body


def _seen(store: ObjectStore, prefix: str) -> list[str]:
    return [one.key for one in objects(store, prefix)]


def _no_upload(call: Callable[[], object]) -> None:
    """There is no such upload."""
    with pytest.raises(NotFound) as caught:
        call()
    assert caught.value.code == "NoSuchUpload"


# From Create to Complete ------------------------------------------------------------------------


def test_an_upload_is_invisible_until_it_is_completed(store: ObjectStore, key: str) -> None:
    """Create and parts change nothing that can be read; Complete shows the joined bytes."""
    upload_id, parts = _pending(store, key)
    assert _seen(store, key) == []
    with pytest.raises(NotFound):
        store.head(key)
    store.complete_upload(key, upload_id, parts, length=len(FULL + TAIL))
    assert _body(store, key) == FULL + TAIL


def test_metadata_goes_through_an_upload(store: ObjectStore, key: str) -> None:
    """The object carries the metadata that Create was given."""
    upload_id = _create(store, key, token="job-1/attempt-2", note="a b")
    parts = [_part(store, key, upload_id, 1, b"x")]
    store.complete_upload(key, upload_id, parts)
    assert store.head(key).metadata == {"token": "job-1/attempt-2", "note": "a b"}


def test_the_etag_is_that_of_the_parts(store: ObjectStore, key: str) -> None:
    """A part's ETag is its MD5; the object's is the MD5 of those, a dash and their number."""
    upload_id, parts = _pending(store, key)
    digests = [hashlib.md5(body).digest() for body in (FULL, TAIL)]
    assert [part.etag for part in parts] == [f'"{digest.hex()}"' for digest in digests]
    written = store.complete_upload(key, upload_id, parts)
    assert written.etag == f'"{hashlib.md5(b"".join(digests)).hexdigest()}-2"'
    assert store.head(key).etag == written.etag


def test_an_empty_file_is_one_empty_part(store: ObjectStore, key: str) -> None:
    """A part of zero bytes makes an object of zero bytes."""
    upload_id = _create(store, key)
    parts = [_part(store, key, upload_id, 1, b"")]
    store.complete_upload(key, upload_id, parts, length=0)
    assert store.head(key).size == 0


def _slice(store: ObjectStore, key: str, path: Path) -> tuple[str, Part]:
    """An upload with a part that is a slice of a file."""
    path.write_bytes(b"before" + FULL + b"after")
    upload_id = _create(store, key)
    return upload_id, store.put_part(key, upload_id, 1, FileSlice(str(path), 6, len(FULL)))


def test_a_part_may_come_from_a_file(store: ObjectStore, key: str, tmp_path: Path) -> None:
    """A slice of a file is sent exactly, whatever lies around it."""
    upload_id, part = _slice(store, key, tmp_path / "blocks")
    store.complete_upload(key, upload_id, [part])
    assert _body(store, key) == FULL


def test_a_part_of_a_file_has_the_etag_of_its_bytes(
    store: ObjectStore, key: str, tmp_path: Path
) -> None:
    """A part's ETag and size are those of the slice."""
    _, part = _slice(store, key, tmp_path / "blocks")
    assert (part.size, part.etag) == (len(FULL), f'"{hashlib.md5(FULL).hexdigest()}"')


def test_a_slice_beyond_its_file_is_refused(store: ObjectStore, key: str, tmp_path: Path) -> None:
    """A file that is shorter than the slice says is an error, never a shorter part."""
    (tmp_path / "short").write_bytes(b"123")
    upload_id = _create(store, key)
    with pytest.raises(InvalidRequest) as caught:
        store.put_part(key, upload_id, 1, FileSlice(str(tmp_path / "short"), 1, 3))
    assert caught.value.code == "IncompleteBody"
    assert store.list_parts(key, upload_id) == ()


def test_parts_are_copied_from_an_object(store: ObjectStore, prefix: str, key: str) -> None:
    """Each is that range of the object with that ETag; Complete takes what the store answered."""
    _copied(store, prefix, key, None)


def test_parts_are_copied_into_an_upload_with_a_checksum(
    store: ObjectStore, prefix: str, key: str
) -> None:
    """The store computes it."""
    _copied(store, prefix, key, "CRC32")


def _copied(store: ObjectStore, prefix: str, key: str, algorithm: ChecksumAlgorithm | None) -> None:
    body, copied = FULL + TAIL, prefix + "from a+b/é"
    etag = store.put(copied, body).etag
    upload_id = _create(store, key, algorithm)

    def copy(number: int, offset: int, length: int) -> Part:
        source = ObjectSlice(store.bucket, copied, etag, offset, length, len(body))
        return store.put_part(key, upload_id, number, source)

    parts = [copy(1, 0, len(FULL)), copy(2, len(FULL), len(TAIL))]
    assert [part.size for part in parts] == [len(FULL), len(TAIL)]
    store.complete_upload(key, upload_id, parts, length=len(body))
    assert _body(store, key) == body


def test_a_part_is_copied_from_a_key_with_an_escape(
    store: ObjectStore, prefix: str, key: str
) -> None:
    """A ``%20`` in a key is three characters of it."""
    source = store.put(prefix + "a%20b", b"body")
    upload_id = _create(store, key)
    whole = ObjectSlice(store.bucket, prefix + "a%20b", source.etag, 0, 4, 4)
    part = store.put_part(key, upload_id, 1, whole)
    store.complete_upload(key, upload_id, [part])
    assert _body(store, key) == b"body"


def test_a_part_is_copied_from_that_version_only(store: ObjectStore, prefix: str, key: str) -> None:
    """What has changed, or is gone, is refused; the upload stays open."""
    old = store.put(prefix + "from", b"old")
    store.put(prefix + "from", b"new")
    upload_id = _create(store, key)
    for name, error in (("from", PreconditionFailed), ("gone", NotFound)):
        source = ObjectSlice(store.bucket, prefix + name, old.etag, 0, 3, 3)
        with pytest.raises(error):
            store.put_part(key, upload_id, 1, source)
    assert store.list_parts(key, upload_id) == ()
    store.abort_upload(key, upload_id)


def test_the_buffer_is_free_after_the_verb(store: ObjectStore, key: str) -> None:
    """What the caller does to the buffer after `put_part` has returned changes nothing."""
    upload_id = _create(store, key)
    buffer = bytearray(b"right" * 30_000)
    part = store.put_part(key, upload_id, 1, memoryview(buffer))
    buffer[:] = b"wrong" * 30_000
    store.complete_upload(key, upload_id, [part])
    assert _body(store, key) == b"right" * 30_000


def test_a_part_may_be_sent_again(store: ObjectStore, key: str) -> None:
    """The last body of a part number is the one that counts."""
    upload_id = _create(store, key)
    old = _part(store, key, upload_id, 1, b"old")
    new = _part(store, key, upload_id, 1, b"new!")
    assert [part.size for part in store.list_parts(key, upload_id)] == [4]
    with pytest.raises(InvalidRequest):
        store.complete_upload(key, upload_id, [old])
    store.complete_upload(key, upload_id, [new])
    assert _body(store, key) == b"new!"


def test_parts_are_listed_by_number(store: ObjectStore, key: str) -> None:
    """ListParts gives number, ETag and size of each stored part, on all pages, in order."""
    upload_id = _create(store, key)
    put = [_part(store, key, upload_id, n, b"x" * n) for n in (7, 2, 10_000, 1, 3)]
    listed = [part[:3] for part in store.list_parts(key, upload_id)]
    assert listed == sorted(part[:3] for part in put)


def test_parts_may_be_left_out(store: ObjectStore, key: str) -> None:
    """The object is made of the parts that Complete names; gaps in the numbers are fine."""
    upload_id = _create(store, key)
    parts = [_part(store, key, upload_id, n, FULL) for n in (2, 5, 9)]
    store.complete_upload(key, upload_id, [parts[0], parts[2]])
    assert store.head(key).size == 2 * len(FULL)


def test_parts_go_up_from_many_threads(store: ObjectStore, key: str) -> None:
    """Parts of one upload may be sent at once, in any order."""
    upload_id = _create(store, key)
    bodies = {n: bytes([n]) * PART_BYTES_MIN for n in range(1, 7)}

    def send(number: int) -> Part:
        return _part(store, key, upload_id, number, bodies[number])

    with closing(ThreadPool(6)) as pool:
        parts = sorted(one.unwrap() for one in pool.each(send, bodies, in_flight=6))
    store.complete_upload(key, upload_id, parts)
    assert _body(store, key) == b"".join(bodies.values())


# What Complete refuses -----------------------------------------------------------------------


def _refused(store: ObjectStore, key: str, upload_id: str, parts: list[Part]) -> None:
    """Complete is refused, nothing becomes visible, and the upload can still be completed."""
    with pytest.raises(InvalidRequest):
        store.complete_upload(key, upload_id, parts)
    with pytest.raises(NotFound):
        store.head(key)
    store.complete_upload(key, upload_id, store.list_parts(key, upload_id))


def _refused_for_good(store: ObjectStore, key: str, call: Callable[[], object]) -> InvalidRequest:
    """The call is refused, and nothing becomes visible."""
    with pytest.raises(InvalidRequest) as caught:
        call()
    assert _seen(store, key) == []
    return caught.value


def test_parts_out_of_order_are_refused(store: ObjectStore, key: str) -> None:
    """Complete wants parts by number."""
    upload_id, parts = _pending(store, key)
    _refused(store, key, upload_id, parts[::-1])


def test_a_repeated_part_is_refused(store: ObjectStore, key: str) -> None:
    """Complete wants each part once."""
    upload_id, parts = _pending(store, key)
    _refused(store, key, upload_id, [parts[0], parts[0], parts[1]])


def test_no_parts_are_refused(store: ObjectStore, key: str) -> None:
    """Complete wants at least one part."""
    upload_id, _ = _pending(store, key)
    _refused(store, key, upload_id, [])


def test_a_part_that_was_not_stored_is_refused(store: ObjectStore, key: str) -> None:
    """Complete wants parts that are there."""
    upload_id, parts = _pending(store, key)
    _refused(store, key, upload_id, [*parts, parts[1]._replace(number=3)])


def test_a_wrong_etag_is_refused(store: ObjectStore, key: str) -> None:
    """Complete wants the parts that were answered, not others of the same number."""
    upload_id, parts = _pending(store, key)
    _refused(store, key, upload_id, [parts[0], parts[1]._replace(etag=parts[0].etag)])


def test_a_small_part_that_is_not_the_last_is_refused(store: ObjectStore, key: str) -> None:
    """Every part but the last has 5 MiB."""
    upload_id = _create(store, key)
    parts = [_part(store, key, upload_id, n, FULL[n - 1 :]) for n in (2, 3)]
    complete = partial(store.complete_upload, key, upload_id, parts)
    assert _refused_for_good(store, key, complete).code == "EntityTooSmall"


def test_a_wrong_length_is_refused(store: ObjectStore, key: str) -> None:
    """Complete refuses a total that is not the parts' (``MpuObjectSize``)."""
    complete = partial(store.complete_upload, key, *_pending(store, key))
    _refused_for_good(store, key, partial(complete, length=len(FULL)))


def test_part_numbers_start_at_1(store: ObjectStore, key: str) -> None:
    """There is no part 0."""
    _refused_for_good(store, key, partial(_part, store, key, _create(store, key), 0, b"x"))


def test_part_numbers_end_at_10_000(store: ObjectStore, key: str) -> None:
    """There is no part 10,001."""
    part = partial(_part, store, key, _create(store, key), PART_NUMBER_MAX + 1, b"x")
    _refused_for_good(store, key, part)


# Checksums -----------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "CRC64NVME"])
def test_a_right_checksum_of_the_whole_is_taken(
    store: ObjectStore, key: str, algorithm: ChecksumAlgorithm
) -> None:
    """Parts and Complete with right CRCs make the object; parts come back with their own."""
    upload_id, parts = _pending(store, key, algorithm)
    sums = [checksums.of(algorithm, body) for body in (FULL, TAIL, FULL + TAIL)]
    assert [part.checksum for part in parts] == sums[:2]
    store.complete_upload(key, upload_id, parts, length=len(FULL + TAIL), checksum=sums[2])
    assert store.head(key).size == len(FULL + TAIL)


def test_sha_sums_of_parts_are_taken(store: ObjectStore, key: str) -> None:
    """Parts with right SHA-256 sums make the object; the whole has none of its own."""
    upload_id, parts = _pending(store, key, "SHA256")
    store.complete_upload(key, upload_id, parts)
    assert store.head(key).size == len(FULL + TAIL)


def test_a_wrong_checksum_of_a_part_is_refused(store: ObjectStore, key: str) -> None:
    """A part whose bytes do not have the given checksum is not stored."""
    upload_id = _create(store, key, "CRC32")
    wrong = checksums.of("CRC32", b"other bytes")
    with pytest.raises(InvalidRequest):
        store.put_part(key, upload_id, 1, memoryview(TAIL), checksum=wrong)
    assert store.list_parts(key, upload_id) == ()


def test_a_wrong_checksum_of_the_whole_is_refused(store: ObjectStore, key: str) -> None:
    """Complete compares the whole object's checksum before it shows anything."""
    complete = partial(store.complete_upload, key, *_pending(store, key, "CRC32"))
    wrong = checksums.of("CRC32", b"other bytes")
    _refused_for_good(store, key, partial(complete, checksum=wrong))


def test_a_wrong_checksum_in_the_list_of_parts_is_refused(store: ObjectStore, key: str) -> None:
    """Complete compares each named part's checksum with the stored one."""
    upload_id, (first, second) = _pending(store, key, "CRC32")
    parts = [first, second._replace(checksum=first.checksum)]
    _refused_for_good(store, key, partial(store.complete_upload, key, upload_id, parts))


# Many at once -----------------------------------------------------------------------------------


def _asked(store: ObjectStore, *asks: Ask) -> list[Answer]:
    """What a store answers to each, in the order of the asks: from one thread if it can."""
    many = many_of(store)
    if many is not None:
        left = enumerate(asks)
        told = dict(many.ask_each(lambda: next(left, None), in_flight=4))
        return [told[number] for number in range(len(asks))]
    answers: list[Answer] = []
    for ask in asks:
        try:
            answers.append(ask_by_verb(store, ask))
        except StoreError as error:
            answers.append(error)
    return answers


def _shown(answer: Answer) -> object:
    return (type(answer), answer.status, answer.code) if isinstance(answer, StoreError) else answer


def test_what_is_asked_at_once_is_answered_as_by_the_verbs(
    store: ObjectStore, prefix: str, key: str
) -> None:
    """Parts of open uploads, an object, and that there is none: each answer is its verb's."""
    upload_id, other = _create(store, key), prefix + "there"
    part = _part(store, key, upload_id, 1, TAIL)
    store.put(other, b"x", metadata={"a": "b"})
    found, gone, there, absent = _asked(
        store, ListParts(key, upload_id), ListParts(key, "not-an-upload"), Head(other), Head(key)
    )
    assert found == store.list_parts(key, upload_id)
    assert [one[:3] for one in cast("tuple[Part, ...]", found)] == [part[:3]]
    with pytest.raises(NotFound) as by_verb:
        store.list_parts(key, "not-an-upload")
    assert _shown(gone) == (NotFound, 404, by_verb.value.code)  # Ceph's own code is NoSuchKey
    assert isinstance(there, ObjectInfo)
    assert replace(there, seen_at=0.0) == replace(store.head(other), seen_at=0.0)
    assert (there.size, there.metadata) == (1, {"a": "b"})
    assert _shown(absent) == (NotFound, 404, "NoSuchKey")


def test_an_upload_is_looked_for_by_its_key_and_id(store: ObjectStore, key: str) -> None:
    """Of a key with two uploads each is found by its id; another id, the key of a neighbour and an
    upload that was aborted are not found."""
    first, second, beside = _create(store, key), _create(store, key), _create(store, key + "2")
    ended = _create(store, key + "3")
    store.abort_upload(key + "3", ended)
    asked = [(key, first), (key, second), (key, "not-an-upload"), (key, beside), (key + "3", ended)]
    found = []
    for page in _asked(store, *(FindUpload(*one) for one in asked)):
        assert isinstance(page, UploadPage)
        found.append([(one.key, one.upload_id) for one in page.uploads])
    assert found == [[asked[0]], [asked[1]], [], [], []]


def test_uploads_that_are_aborted_at_once_are_gone(store: ObjectStore, prefix: str) -> None:
    """Each abort ends its own upload: its parts are gone, and the others' stay."""
    opened = [(key, _create(store, key)) for key in (f"{prefix}{number}" for number in range(6))]
    for one in opened:
        _part(store, *one, 1, TAIL)
    assert _asked(store, *(AbortUpload(*one) for one in opened[:4])) == [Written("")] * 4
    looks = _asked(store, *(ListParts(*one) for one in opened))
    assert [type(look) for look in looks[:4]] == [NotFound] * 4
    assert [cast("tuple[Part, ...]", look)[0].size for look in looks[4:]] == [len(TAIL)] * 2


# Once, again, never ----------------------------------------------------------------------------


def test_a_second_complete_repeats_the_answer_or_finds_nothing(
    store: ObjectStore, key: str
) -> None:
    """Stores differ: the same answer again, or NotFound. The object stays as it was."""
    complete = partial(store.complete_upload, key, *_pending(store, key))
    first = complete()
    with suppress(NotFound):
        assert complete().etag == first.etag
    assert store.head(key).etag == first.etag


def test_a_second_complete_does_not_bring_back_what_was_replaced(
    store: ObjectStore, key: str
) -> None:
    """Once the object was written over, the upload is gone for good."""
    complete = partial(store.complete_upload, key, *_pending(store, key))
    complete()
    store.put(key, b"newer")
    with pytest.raises(NotFound):
        complete()
    assert _body(store, key) == b"newer"


def test_a_second_complete_does_not_bring_back_what_was_deleted(
    store: ObjectStore, key: str
) -> None:
    """Once the object was deleted, the upload is gone for good."""
    complete = partial(store.complete_upload, key, *_pending(store, key))
    complete()
    store.delete_one(key)
    with pytest.raises(NotFound):
        complete()
    assert _seen(store, key) == []


def test_complete_if_none_match_never_overwrites(store: ObjectStore, key: str) -> None:
    """Where the key exists, Complete ``If-None-Match: *`` fails and the upload stays open."""
    upload_id, parts = _pending(store, key)
    store.put(key, b"there")
    with pytest.raises(PreconditionFailed):
        store.complete_upload(key, upload_id, parts, if_none_match=True)
    assert _body(store, key) == b"there"
    assert _open(store, key) == [upload_id]
    store.delete_one(key)
    store.complete_upload(key, upload_id, parts, if_none_match=True)
    assert store.head(key).size == len(FULL + TAIL)


def test_parts_of_an_upload_that_never_was_are_not_found(store: ObjectStore, key: str) -> None:
    """ListParts of an unknown upload raises NotFound, code NoSuchUpload."""
    _no_upload(lambda: store.list_parts(key, "not-an-upload"))


def test_a_part_for_an_upload_that_never_was_is_not_found(store: ObjectStore, key: str) -> None:
    """A part for an unknown upload raises NotFound, code NoSuchUpload."""
    _no_upload(lambda: _part(store, key, "not-an-upload", 1, b"x"))


def test_completing_an_upload_that_never_was_is_not_found(
    store: ObjectStore, prefix: str, key: str
) -> None:
    """Complete of an unknown upload raises NotFound, code NoSuchUpload."""
    _, parts = _pending(store, prefix + "other")
    _no_upload(lambda: store.complete_upload(key, "not-an-upload", parts))


def test_an_upload_belongs_to_its_key(store: ObjectStore, prefix: str) -> None:
    """Complete with the id of another key's upload publishes nothing."""
    upload_id, parts = _pending(store, prefix + "a")
    with pytest.raises(NotFound):
        store.complete_upload(prefix + "b", upload_id, parts)
    assert list(objects(store, prefix)) == []


def test_an_aborted_upload_is_gone(store: ObjectStore, key: str) -> None:
    """After an abort the upload is not listed and has no parts; aborting again is fine."""
    upload_id, _ = _pending(store, key)
    for ended in (upload_id, upload_id, "not-an-upload"):
        store.abort_upload(key, ended)
    assert _open(store, key) == []
    with pytest.raises(NotFound):
        store.list_parts(key, upload_id)


def test_an_aborted_upload_takes_no_part(store: ObjectStore, key: str) -> None:
    """A part that comes after the abort is refused: NotFound."""
    upload_id, _ = _pending(store, key)
    store.abort_upload(key, upload_id)
    with pytest.raises(NotFound):
        _part(store, key, upload_id, 3, TAIL)


def test_completing_an_aborted_upload_is_not_found(store: ObjectStore, key: str) -> None:
    """After an abort nothing can be made visible any more."""
    upload_id, parts = _pending(store, key)
    store.abort_upload(key, upload_id)
    _no_upload(lambda: store.complete_upload(key, upload_id, parts))
    assert _seen(store, key) == []


def test_aborting_a_completed_upload_leaves_the_object(store: ObjectStore, key: str) -> None:
    """An abort that comes too late does no harm."""
    upload_id, parts = _pending(store, key)
    store.complete_upload(key, upload_id, parts)
    store.abort_upload(key, upload_id)
    assert store.head(key).size == len(FULL + TAIL)


# Listings ------------------------------------------------------------------------------------


def test_open_uploads_are_listed_until_they_end(store: ObjectStore, prefix: str) -> None:
    """The listing has each open upload once, several of a key too, and none that has ended."""
    keys = [prefix + "a", prefix + "b", prefix + "b", prefix + "c"]
    made = {_create(store, key): key for key in keys}
    listed = {one.upload_id: one.key for one in uploads(store, prefix)}
    assert listed == made
    first, second, *rest = made
    store.abort_upload(made[first], first)
    part = _part(store, made[second], second, 1, b"x")
    store.complete_upload(made[second], second, [part])
    assert sorted(_open(store, prefix)) == sorted(rest)


def test_a_neighbours_upload_is_not_listed(store: ObjectStore, prefix: str) -> None:
    """A prefix ends where it says: ``dataset1/`` holds nothing of ``dataset10/``."""
    mine = _create(store, prefix + "dataset1/a")
    _create(store, prefix + "dataset10/b")
    assert _open(store, prefix + "dataset1/") == [mine]
    assert _open(store, prefix + "nothing/") == []


def test_uploads_are_listed_by_key_then_initiation(store: ObjectStore, prefix: str) -> None:
    """Order is by key in UTF-8, then by the time of Create."""
    names = ["c", "a", "é", "b", "a", "B", "a"]
    made = [(prefix + name, _create(store, prefix + name)) for name in names]
    listed = [(one.key, one.upload_id) for one in uploads(store, prefix)]
    assert listed == sorted(made, key=lambda one: one[0].encode())


def test_a_listing_of_uploads_tells_when_it_was_made(store: ObjectStore, key: str) -> None:
    """Every page carries the store's time, after the uploads' own."""
    _create(store, key)
    (page,) = [page for page in store.list_uploads(key) if page.uploads]
    initiated = page.uploads[0].initiated
    assert initiated is not None
    assert -1 <= page.seen_at - initiated < 60


@pytest.mark.parametrize("name", ["with space", "a+b", "%2F", "é中🙂", "'\"<&>*"])
def test_uploads_of_all_kinds_of_keys(store: ObjectStore, prefix: str, name: str) -> None:
    """Spaces, plus, percent, quotes and Unicode in keys are kept by every verb of an upload."""
    key = prefix + name
    upload_id = _create(store, key)
    part = _part(store, key, upload_id, 1, b"x")
    assert [(one.key, one.upload_id) for one in uploads(store, prefix)] == [(key, upload_id)]
    store.complete_upload(key, upload_id, [part])
    assert _seen(store, prefix) == [key]


def test_an_upload_of_a_key_that_xml_cannot_hold_is_listed(store: ObjectStore, prefix: str) -> None:
    """By every verb of an upload, beside others: of control characters only NUL is left out."""
    key, neighbour = f"{prefix}a\x01\x1f\ufffe+%41 🙂", f"{prefix}b=1"
    upload_id, other = _create(store, key), _create(store, neighbour)
    part = _part(store, key, upload_id, 1, b"x")
    assert store.list_parts(key, upload_id) == (part,)
    listed = {one.upload_id: one.key for one in uploads(store, prefix)}
    assert listed == {upload_id: key, other: neighbour}
    store.complete_upload(key, upload_id, [part])
    assert _seen(store, prefix) == [key]
