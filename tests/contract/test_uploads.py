"""Uploads: what becomes visible when, and what Complete refuses."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from magic_committer import checksum as checksums
from magic_committer._pool import ThreadPool
from magic_committer.errors import InvalidRequest, NotFound, PreconditionFailed, StoreError
from magic_committer.stores.base import (
    PART_BYTES_MIN,
    PART_NUMBER_MAX,
    AbortUpload,
    Answer,
    Ask,
    Attributes,
    Checksum,
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


# From Create to Complete ------------------------------------------------------------------------


def test_an_upload_is_invisible_until_it_is_completed(store: ObjectStore, prefix: str) -> None:
    """Create and parts change nothing that can be read; Complete shows the joined bytes."""
    upload_id, parts = _pending(store, prefix + "k")
    assert list(objects(store, prefix)) == []
    with pytest.raises(NotFound):
        store.head(prefix + "k")
    store.complete_upload(prefix + "k", upload_id, parts, length=len(FULL + TAIL))
    assert store.get(prefix + "k", max_bytes=2 * len(FULL)).body == FULL + TAIL


def test_metadata_goes_through_an_upload(store: ObjectStore, prefix: str) -> None:
    """The object carries the metadata that Create was given."""
    upload_id = _create(store, prefix + "k", token="job-1/attempt-2", note="a b")
    parts = [_part(store, prefix + "k", upload_id, 1, b"x")]
    store.complete_upload(prefix + "k", upload_id, parts)
    assert store.head(prefix + "k").metadata == {"token": "job-1/attempt-2", "note": "a b"}


def test_the_etag_is_that_of_the_parts(store: ObjectStore, prefix: str) -> None:
    """A part's ETag is its MD5; the object's is the MD5 of those, a dash and their number."""
    upload_id, parts = _pending(store, prefix + "k")
    digests = [hashlib.md5(body).digest() for body in (FULL, TAIL)]
    assert [part.etag for part in parts] == [f'"{digest.hex()}"' for digest in digests]
    written = store.complete_upload(prefix + "k", upload_id, parts)
    assert written.etag == f'"{hashlib.md5(b"".join(digests)).hexdigest()}-2"'
    assert store.head(prefix + "k").etag == written.etag


def test_an_empty_file_is_one_empty_part(store: ObjectStore, prefix: str) -> None:
    """A part of zero bytes makes an object of zero bytes."""
    upload_id = _create(store, prefix + "k")
    parts = [_part(store, prefix + "k", upload_id, 1, b"")]
    store.complete_upload(prefix + "k", upload_id, parts, length=0)
    assert store.head(prefix + "k").size == 0


def test_a_part_may_come_from_a_file(store: ObjectStore, prefix: str, tmp_path: Path) -> None:
    """A slice of a file is sent exactly, whatever lies around it."""
    (tmp_path / "blocks").write_bytes(b"before" + FULL + b"after")
    upload_id = _create(store, prefix + "k")
    body = FileSlice(str(tmp_path / "blocks"), 6, len(FULL))
    part = store.put_part(prefix + "k", upload_id, 1, body)
    store.complete_upload(prefix + "k", upload_id, [part])
    assert store.get(prefix + "k", max_bytes=len(FULL)).body == FULL


def test_a_part_of_a_file_has_the_etag_of_its_bytes(
    store: ObjectStore, prefix: str, tmp_path: Path
) -> None:
    """A part's ETag and size are those of the slice."""
    (tmp_path / "blocks").write_bytes(b"before" + FULL + b"after")
    upload_id = _create(store, prefix + "k")
    body = FileSlice(str(tmp_path / "blocks"), 6, len(FULL))
    part = store.put_part(prefix + "k", upload_id, 1, body)
    assert (part.size, part.etag) == (len(FULL), f'"{hashlib.md5(FULL).hexdigest()}"')


def test_a_slice_beyond_its_file_is_refused(
    store: ObjectStore, prefix: str, tmp_path: Path
) -> None:
    """A file that is shorter than the slice says is an error, never a shorter part."""
    (tmp_path / "short").write_bytes(b"123")
    upload_id = _create(store, prefix + "k")
    with pytest.raises(InvalidRequest) as caught:
        store.put_part(prefix + "k", upload_id, 1, FileSlice(str(tmp_path / "short"), 1, 3))
    assert caught.value.code == "IncompleteBody"
    assert store.list_parts(prefix + "k", upload_id) == ()


@pytest.mark.parametrize("algorithm", [None, "CRC32"])
def test_parts_are_copied_from_an_object(
    store: ObjectStore, prefix: str, algorithm: ChecksumAlgorithm | None
) -> None:
    """Each is that range of the object with that ETag; Complete takes what the store answered."""
    body = FULL + TAIL
    copied = prefix + "from a+b/é"
    source = store.put(copied, body)
    upload_id = _create(store, prefix + "k", algorithm)
    cuts = [(0, len(FULL)), (len(FULL), len(TAIL))]
    parts = [
        store.put_part(
            prefix + "k", upload_id, number,
            ObjectSlice(store.bucket, copied, source.etag, offset, length, len(body)),
        )
        for number, (offset, length) in enumerate(cuts, 1)
    ]  # fmt: skip
    assert [part.size for part in parts] == [len(FULL), len(TAIL)]
    store.complete_upload(prefix + "k", upload_id, parts, length=len(body))
    assert store.get(prefix + "k", max_bytes=len(body)).body == body


def test_a_part_is_copied_from_a_key_with_an_escape(store: ObjectStore, prefix: str) -> None:
    """A ``%20`` in a key is three characters of it."""
    source = store.put(prefix + "a%20b", b"body")
    upload_id = _create(store, prefix + "k")
    whole = ObjectSlice(store.bucket, prefix + "a%20b", source.etag, 0, 4, 4)
    part = store.put_part(prefix + "k", upload_id, 1, whole)
    store.complete_upload(prefix + "k", upload_id, [part])
    assert store.get(prefix + "k", max_bytes=4).body == b"body"


def test_a_part_is_copied_from_that_version_only(store: ObjectStore, prefix: str) -> None:
    """What has changed, or is gone, is refused; the upload stays open."""
    old = store.put(prefix + "from", b"old")
    store.put(prefix + "from", b"new")
    upload_id = _create(store, prefix + "k")
    for name, error in (("from", PreconditionFailed), ("gone", NotFound)):
        source = ObjectSlice(store.bucket, prefix + name, old.etag, 0, 3, 3)
        with pytest.raises(error):
            store.put_part(prefix + "k", upload_id, 1, source)
    assert store.list_parts(prefix + "k", upload_id) == ()
    store.abort_upload(prefix + "k", upload_id)


def test_the_buffer_is_free_after_the_verb(store: ObjectStore, prefix: str) -> None:
    """What the caller does to the buffer after `put_part` has returned changes nothing."""
    upload_id = _create(store, prefix + "k")
    buffer = bytearray(b"right" * 30_000)
    part = store.put_part(prefix + "k", upload_id, 1, memoryview(buffer))
    buffer[:] = b"wrong" * 30_000
    store.complete_upload(prefix + "k", upload_id, [part])
    assert store.get(prefix + "k", max_bytes=200_000).body == b"right" * 30_000


def test_a_part_may_be_sent_again(store: ObjectStore, prefix: str) -> None:
    """The last body of a part number is the one that counts."""
    upload_id = _create(store, prefix + "k")
    old = _part(store, prefix + "k", upload_id, 1, b"old")
    new = _part(store, prefix + "k", upload_id, 1, b"new!")
    assert [part.size for part in store.list_parts(prefix + "k", upload_id)] == [4]
    with pytest.raises(InvalidRequest):
        store.complete_upload(prefix + "k", upload_id, [old])
    store.complete_upload(prefix + "k", upload_id, [new])
    assert store.get(prefix + "k", max_bytes=9).body == b"new!"


def test_parts_are_listed_by_number(store: ObjectStore, prefix: str) -> None:
    """ListParts gives number, ETag and size of each stored part, on all pages, in order."""
    upload_id = _create(store, prefix + "k")
    put = [_part(store, prefix + "k", upload_id, n, b"x" * n) for n in (7, 2, 10_000, 1, 3)]
    listed = store.list_parts(prefix + "k", upload_id)
    assert [(p.number, p.etag, p.size) for p in listed] == [
        (p.number, p.etag, p.size) for p in sorted(put, key=lambda p: p.number)
    ]


def test_parts_may_be_left_out(store: ObjectStore, prefix: str) -> None:
    """The object is made of the parts that Complete names; gaps in the numbers are fine."""
    upload_id = _create(store, prefix + "k")
    parts = [_part(store, prefix + "k", upload_id, n, FULL) for n in (2, 5, 9)]
    store.complete_upload(prefix + "k", upload_id, [parts[0], parts[2]])
    assert store.head(prefix + "k").size == 2 * len(FULL)


def test_parts_go_up_from_many_threads(store: ObjectStore, prefix: str) -> None:
    """Parts of one upload may be sent at once, in any order."""
    upload_id = _create(store, prefix + "k")
    bodies = {n: bytes([n]) * PART_BYTES_MIN for n in range(1, 7)}
    pool = ThreadPool(6)
    try:
        sent = pool.each(
            lambda n: _part(store, prefix + "k", upload_id, n, bodies[n]), bodies, in_flight=6
        )
        parts = sorted((one.unwrap() for one in sent), key=lambda part: part.number)
    finally:
        pool.close()
    store.complete_upload(prefix + "k", upload_id, parts)
    whole = b"".join(bodies.values())
    assert store.get(prefix + "k", max_bytes=len(whole)).body == whole


# What Complete refuses -----------------------------------------------------------------------


def _refused(store: ObjectStore, key: str, upload_id: str, parts: list[Part]) -> None:
    """Complete is refused, nothing becomes visible, and the upload can still be completed."""
    with pytest.raises(InvalidRequest):
        store.complete_upload(key, upload_id, parts)
    with pytest.raises(NotFound):
        store.head(key)
    store.complete_upload(key, upload_id, store.list_parts(key, upload_id))


def test_parts_out_of_order_are_refused(store: ObjectStore, prefix: str) -> None:
    """Complete wants parts by number."""
    upload_id, parts = _pending(store, prefix + "k")
    _refused(store, prefix + "k", upload_id, parts[::-1])


def test_a_repeated_part_is_refused(store: ObjectStore, prefix: str) -> None:
    """Complete wants each part once."""
    upload_id, parts = _pending(store, prefix + "k")
    _refused(store, prefix + "k", upload_id, [parts[0], parts[0], parts[1]])


def test_no_parts_are_refused(store: ObjectStore, prefix: str) -> None:
    """Complete wants at least one part."""
    upload_id, _ = _pending(store, prefix + "k")
    _refused(store, prefix + "k", upload_id, [])


def test_a_part_that_was_not_stored_is_refused(store: ObjectStore, prefix: str) -> None:
    """Complete wants parts that are there."""
    upload_id, parts = _pending(store, prefix + "k")
    _refused(store, prefix + "k", upload_id, [*parts, parts[1]._replace(number=3)])


def test_a_wrong_etag_is_refused(store: ObjectStore, prefix: str) -> None:
    """Complete wants the parts that were answered, not others of the same number."""
    upload_id, parts = _pending(store, prefix + "k")
    _refused(store, prefix + "k", upload_id, [parts[0], parts[1]._replace(etag=parts[0].etag)])


def test_a_small_part_that_is_not_the_last_is_refused(store: ObjectStore, prefix: str) -> None:
    """Every part but the last has 5 MiB."""
    upload_id = _create(store, prefix + "k")
    parts = [_part(store, prefix + "k", upload_id, n, FULL[n - 1 :]) for n in (2, 3)]
    with pytest.raises(InvalidRequest) as caught:
        store.complete_upload(prefix + "k", upload_id, parts)
    assert caught.value.code == "EntityTooSmall"
    assert list(objects(store, prefix)) == []


def test_a_wrong_length_is_refused(store: ObjectStore, prefix: str) -> None:
    """Complete refuses a total that is not the parts' (``MpuObjectSize``)."""
    upload_id, parts = _pending(store, prefix + "k")
    with pytest.raises(InvalidRequest):
        store.complete_upload(prefix + "k", upload_id, parts, length=len(FULL))
    assert list(objects(store, prefix)) == []


def test_part_numbers_start_at_1(store: ObjectStore, prefix: str) -> None:
    """There is no part 0."""
    upload_id = _create(store, prefix + "k")
    with pytest.raises(InvalidRequest):
        _part(store, prefix + "k", upload_id, 0, b"x")


def test_part_numbers_end_at_10_000(store: ObjectStore, prefix: str) -> None:
    """There is no part 10,001."""
    upload_id = _create(store, prefix + "k")
    with pytest.raises(InvalidRequest):
        _part(store, prefix + "k", upload_id, PART_NUMBER_MAX + 1, b"x")


# Checksums -----------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "CRC64NVME"])
def test_a_right_checksum_of_the_whole_is_taken(
    store: ObjectStore, prefix: str, algorithm: ChecksumAlgorithm
) -> None:
    """Parts and Complete with right CRCs make the object; parts come back with their own."""
    upload_id, parts = _pending(store, prefix + "k", algorithm)
    assert [part.checksum for part in parts] == [
        checksums.of(algorithm, FULL),
        checksums.of(algorithm, TAIL),
    ]
    whole = checksums.of(algorithm, FULL + TAIL)
    store.complete_upload(prefix + "k", upload_id, parts, length=len(FULL + TAIL), checksum=whole)
    assert store.head(prefix + "k").size == len(FULL + TAIL)


def test_sha_sums_of_parts_are_taken(store: ObjectStore, prefix: str) -> None:
    """Parts with right SHA-256 sums make the object; the whole has none of its own."""
    upload_id, parts = _pending(store, prefix + "k", "SHA256")
    store.complete_upload(prefix + "k", upload_id, parts)
    assert store.head(prefix + "k").size == len(FULL + TAIL)


def test_a_wrong_checksum_of_a_part_is_refused(store: ObjectStore, prefix: str) -> None:
    """A part whose bytes do not have the given checksum is not stored."""
    upload_id = _create(store, prefix + "k", "CRC32")
    wrong = checksums.of("CRC32", b"other bytes")
    with pytest.raises(InvalidRequest):
        store.put_part(prefix + "k", upload_id, 1, memoryview(TAIL), checksum=wrong)
    assert store.list_parts(prefix + "k", upload_id) == ()


def test_a_wrong_checksum_of_the_whole_is_refused(store: ObjectStore, prefix: str) -> None:
    """Complete compares the whole object's checksum before it shows anything."""
    upload_id, parts = _pending(store, prefix + "k", "CRC32")
    wrong = Checksum("CRC32", checksums.of("CRC32", b"other bytes").value)
    with pytest.raises(InvalidRequest):
        store.complete_upload(prefix + "k", upload_id, parts, checksum=wrong)
    assert list(objects(store, prefix)) == []


def test_a_wrong_checksum_in_the_list_of_parts_is_refused(store: ObjectStore, prefix: str) -> None:
    """Complete compares each named part's checksum with the stored one."""
    upload_id, parts = _pending(store, prefix + "k", "CRC32")
    wrong = parts[1]._replace(checksum=parts[0].checksum)
    with pytest.raises(InvalidRequest):
        store.complete_upload(prefix + "k", upload_id, [parts[0], wrong])
    assert list(objects(store, prefix)) == []


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


def test_what_is_asked_at_once_is_answered_as_by_the_verbs(store: ObjectStore, prefix: str) -> None:
    """Parts of open uploads, an object, and that there is none: each answer is its verb's."""
    upload_id = _create(store, prefix + "k")
    parts = [_part(store, prefix + "k", upload_id, 1, TAIL)]
    store.put(prefix + "there", b"x", metadata={"a": "b"})
    found, gone, there, absent = _asked(
        store,
        ListParts(prefix + "k", upload_id),
        ListParts(prefix + "k", "not-an-upload"),
        Head(prefix + "there"),
        Head(prefix + "k"),
    )
    assert [(part.number, part.etag, part.size) for part in cast("tuple[Part, ...]", found)] == [
        (part.number, part.etag, part.size) for part in parts
    ]
    assert found == store.list_parts(prefix + "k", upload_id)
    with pytest.raises(NotFound) as by_verb:
        store.list_parts(prefix + "k", "not-an-upload")
    assert _shown(gone) == (NotFound, 404, by_verb.value.code)  # Ceph's own code is NoSuchKey
    assert isinstance(there, ObjectInfo)
    assert replace(there, seen_at=0.0) == replace(store.head(prefix + "there"), seen_at=0.0)
    assert (there.size, there.metadata) == (1, {"a": "b"})
    assert _shown(absent) == (NotFound, 404, "NoSuchKey")


def test_an_upload_is_looked_for_by_its_key_and_id(store: ObjectStore, prefix: str) -> None:
    """Of a key with two uploads each is found by its id; another id, the key of a neighbour and an
    upload that was aborted are not found."""
    first, second = _create(store, prefix + "k"), _create(store, prefix + "k")
    beside, ended = _create(store, prefix + "k2"), _create(store, prefix + "k3")
    store.abort_upload(prefix + "k3", ended)
    asked = [
        FindUpload(prefix + "k", first),
        FindUpload(prefix + "k", second),
        FindUpload(prefix + "k", "not-an-upload"),
        FindUpload(prefix + "k", beside),
        FindUpload(prefix + "k3", ended),
    ]
    found = []
    for page in _asked(store, *asked):
        assert isinstance(page, UploadPage)
        found.append([(one.key, one.upload_id) for one in page.uploads])
    k = prefix + "k"
    assert found == [[(k, first)], [(k, second)], [], [], []]


def test_uploads_that_are_aborted_at_once_are_gone(store: ObjectStore, prefix: str) -> None:
    """Each abort ends its own upload: its parts are gone, and the others' stay."""
    keys = [f"{prefix}{number}" for number in range(6)]
    opened = [_create(store, key) for key in keys]
    for key, upload_id in zip(keys, opened, strict=True):
        _part(store, key, upload_id, 1, TAIL)
    doomed = list(zip(keys, opened, strict=True))[:4]
    assert _asked(store, *(AbortUpload(*one) for one in doomed)) == [Written("")] * 4
    looks = _asked(store, *(ListParts(*one) for one in zip(keys, opened, strict=True)))
    assert [type(look) for look in looks[:4]] == [NotFound] * 4
    assert [cast("tuple[Part, ...]", look)[0].size for look in looks[4:]] == [len(TAIL)] * 2


# Once, again, never ----------------------------------------------------------------------------


def test_a_second_complete_repeats_the_answer_or_finds_nothing(
    store: ObjectStore, prefix: str
) -> None:
    """Stores differ: the same answer again, or NotFound. The object stays as it was."""
    upload_id, parts = _pending(store, prefix + "k")
    first = store.complete_upload(prefix + "k", upload_id, parts)
    try:
        second = store.complete_upload(prefix + "k", upload_id, parts).etag
    except NotFound:
        second = first.etag
    assert second == first.etag
    assert store.head(prefix + "k").etag == first.etag


def test_a_second_complete_does_not_bring_back_what_was_replaced(
    store: ObjectStore, prefix: str
) -> None:
    """Once the object was written over, the upload is gone for good."""
    upload_id, parts = _pending(store, prefix + "k")
    store.complete_upload(prefix + "k", upload_id, parts)
    store.put(prefix + "k", b"newer")
    with pytest.raises(NotFound):
        store.complete_upload(prefix + "k", upload_id, parts)
    assert store.get(prefix + "k", max_bytes=9).body == b"newer"


def test_a_second_complete_does_not_bring_back_what_was_deleted(
    store: ObjectStore, prefix: str
) -> None:
    """Once the object was deleted, the upload is gone for good."""
    upload_id, parts = _pending(store, prefix + "k")
    store.complete_upload(prefix + "k", upload_id, parts)
    store.delete_one(prefix + "k")
    with pytest.raises(NotFound):
        store.complete_upload(prefix + "k", upload_id, parts)
    assert list(objects(store, prefix)) == []


def test_complete_if_none_match_never_overwrites(store: ObjectStore, prefix: str) -> None:
    """Where the key exists, Complete ``If-None-Match: *`` fails and the upload stays open."""
    upload_id, parts = _pending(store, prefix + "k")
    store.put(prefix + "k", b"there")
    with pytest.raises(PreconditionFailed):
        store.complete_upload(prefix + "k", upload_id, parts, if_none_match=True)
    assert store.get(prefix + "k", max_bytes=9).body == b"there"
    assert _open(store, prefix) == [upload_id]
    store.delete_one(prefix + "k")
    store.complete_upload(prefix + "k", upload_id, parts, if_none_match=True)
    assert store.head(prefix + "k").size == len(FULL + TAIL)


def test_parts_of_an_upload_that_never_was_are_not_found(store: ObjectStore, prefix: str) -> None:
    """ListParts of an unknown upload raises NotFound, code NoSuchUpload."""
    with pytest.raises(NotFound) as caught:
        store.list_parts(prefix + "k", "not-an-upload")
    assert caught.value.code == "NoSuchUpload"


def test_a_part_for_an_upload_that_never_was_is_not_found(store: ObjectStore, prefix: str) -> None:
    """A part for an unknown upload raises NotFound, code NoSuchUpload."""
    with pytest.raises(NotFound) as caught:
        _part(store, prefix + "k", "not-an-upload", 1, b"x")
    assert caught.value.code == "NoSuchUpload"


def test_completing_an_upload_that_never_was_is_not_found(store: ObjectStore, prefix: str) -> None:
    """Complete of an unknown upload raises NotFound, code NoSuchUpload."""
    _, parts = _pending(store, prefix + "other")
    with pytest.raises(NotFound) as caught:
        store.complete_upload(prefix + "k", "not-an-upload", parts)
    assert caught.value.code == "NoSuchUpload"


def test_an_upload_belongs_to_its_key(store: ObjectStore, prefix: str) -> None:
    """Complete with the id of another key's upload publishes nothing."""
    upload_id, parts = _pending(store, prefix + "a")
    with pytest.raises(NotFound):
        store.complete_upload(prefix + "b", upload_id, parts)
    assert list(objects(store, prefix)) == []


def test_an_aborted_upload_is_gone(store: ObjectStore, prefix: str) -> None:
    """After an abort the upload is not listed and has no parts; aborting again is fine."""
    upload_id, _ = _pending(store, prefix + "k")
    store.abort_upload(prefix + "k", upload_id)
    store.abort_upload(prefix + "k", upload_id)
    store.abort_upload(prefix + "k", "not-an-upload")
    assert _open(store, prefix) == []
    with pytest.raises(NotFound):
        store.list_parts(prefix + "k", upload_id)


def test_an_aborted_upload_takes_no_part(store: ObjectStore, prefix: str) -> None:
    """A part that comes after the abort is refused: NotFound."""
    upload_id, _ = _pending(store, prefix + "k")
    store.abort_upload(prefix + "k", upload_id)
    with pytest.raises(NotFound):
        _part(store, prefix + "k", upload_id, 3, TAIL)


def test_completing_an_aborted_upload_is_not_found(store: ObjectStore, prefix: str) -> None:
    """After an abort nothing can be made visible any more."""
    upload_id, parts = _pending(store, prefix + "k")
    store.abort_upload(prefix + "k", upload_id)
    with pytest.raises(NotFound) as caught:
        store.complete_upload(prefix + "k", upload_id, parts)
    assert caught.value.code == "NoSuchUpload"
    assert list(objects(store, prefix)) == []


def test_aborting_a_completed_upload_leaves_the_object(store: ObjectStore, prefix: str) -> None:
    """An abort that comes too late does no harm."""
    upload_id, parts = _pending(store, prefix + "k")
    store.complete_upload(prefix + "k", upload_id, parts)
    store.abort_upload(prefix + "k", upload_id)
    assert store.head(prefix + "k").size == len(FULL + TAIL)


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


def test_a_listing_of_uploads_tells_when_it_was_made(store: ObjectStore, prefix: str) -> None:
    """Every page carries the store's time, after the uploads' own."""
    _create(store, prefix + "k")
    (page,) = [page for page in store.list_uploads(prefix) if page.uploads]
    initiated = page.uploads[0].initiated
    assert initiated is not None
    assert -1 <= page.seen_at - initiated < 60


@pytest.mark.parametrize("key", ["with space", "a+b", "%2F", "é中🙂", "'\"<&>*"])
def test_uploads_of_all_kinds_of_keys(store: ObjectStore, prefix: str, key: str) -> None:
    """Spaces, plus, percent, quotes and Unicode in keys are kept by every verb of an upload."""
    upload_id = _create(store, prefix + key)
    part = _part(store, prefix + key, upload_id, 1, b"x")
    assert [(one.key, one.upload_id) for one in uploads(store, prefix)] == [
        (prefix + key, upload_id)
    ]
    store.complete_upload(prefix + key, upload_id, [part])
    assert [one.key for one in objects(store, prefix)] == [prefix + key]
