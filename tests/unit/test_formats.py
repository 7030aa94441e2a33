"""`.pending`, `.pendingset` and `_SUCCESS` against what four releases of Hadoop wrote, and the
rules of reading and writing."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from magic_committer.errors import FormatError
from magic_committer.hadoop import formats
from magic_committer.hadoop import json as documents
from magic_committer.hadoop.formats import EtagForm, Pending, PendingSet, UploadEtag
from magic_committer.hadoop.manifests import (
    ManifestFile,
    TaskManifest,
    decode_manifest,
    encode_manifest,
)
from magic_committer.hadoop.paths import java_uri

GOLDEN = Path(__file__).parent.parent / "golden"
FILES = sorted(
    path
    for path in GOLDEN.glob("3.*/*/*.json")
    if path.name.startswith(("pending", "_SUCCESS", "summary"))
)
MD5 = "5d41402abc4b2a76b9719d911017c592"
ETAG = UploadEtag(f'"{MD5}"', "CRC32", "NhCmhg==")


def name_of(path: Path) -> str:
    return "/".join(path.parts[-3:])


def form_of(path: Path) -> EtagForm:
    """Objects came with Hadoop 3.4.2."""
    return "objects" if path.parts[-3] == "3.5.0" else "strings"


def again(path: Path, data: bytes) -> bytes:
    """Decode and encode a golden file; without our seal, which Hadoop's have not."""
    source = name_of(path)
    if path.name.startswith("pendingset"):
        written = formats.encode_pendingset(formats.decode_pendingset(data, source), form_of(path))
    elif path.name.startswith("pending"):
        written = formats.encode_pending(formats.decode_pending(data, source), form_of(path))
    else:
        return formats.encode_success(formats.decode_success(data, source))
    return re.sub(rb',"contentSha256":"[0-9a-f]{64}"}$', b"}", written)


def read(path: Path, data: bytes) -> object:
    """Decode a golden file."""
    of_kind = {"pendingset": formats.decode_pendingset, "pending": formats.decode_pending}
    decode = of_kind.get(path.name.partition("-")[0], formats.decode_success)
    return decode(data, name_of(path))


def pairs(data: bytes) -> Any:
    return json.loads(data, object_pairs_hook=list)


def pending(**changes: Any) -> Pending:
    values: dict[str, Any] = {
        "uri": "s3a://b/t/__magic_job-1/job-1/00/tasks/a/__base/x.csv",
        "upload_id": "U1",
        "bucket": "b",
        "destination_key": "t/x.csv",
        "created_ms": 1767225600000,
        "etags": (ETAG,),
        "length": 5,
        "extra_data": {"checksum": "CRC32:NhCmhg=="},
        "job_id": "1",
        "task_id": "a",
    }
    return formats.new_pending(**(values | changes))


def pendingset(*commits: Pending) -> PendingSet:
    return formats.new_pendingset(
        job_id="1",
        commits=commits or (pending(), pending(destination_key="t/y.csv")),
        extra_data={"task": "7"},
        iostatistics={"counters": {"committer_bytes_uploaded": 10}},
    )


def bare(document: dict[str, Any]) -> dict[str, Any]:
    """A document of ours without its seal: what a change of it is then judged by."""
    return {name: value for name, value in document.items() if name != documents.SEAL}


def document(**changes: Any) -> dict[str, Any]:
    """A `.pending` without a seal; a change to ``...`` takes a field away."""
    changed = bare(orjson.loads(formats.encode_pending(pending()))) | changes
    return {name: value for name, value in changed.items() if value is not ...}


# Golden files -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_what_hadoop_wrote_comes_out_as_it_went_in(path: Path) -> None:
    """Every file of every release is read; compact `.pending`s are written again byte for byte,
    pretty ones (3.3.4) with the same values and order; sets and `_SUCCESS` with the same values."""
    data = path.read_bytes()
    written = again(path, data)
    if not path.name.startswith("pending-"):
        values = json.loads(data)
        assert {name: json.loads(written)[name] for name in values} == values
    elif b"\n" in data:
        assert pairs(written) == pairs(data)
        assert path.parts[-3] == "3.3.4"
    else:
        assert written == data


def test_all_golden_files_are_looked_at() -> None:
    """The glob above finds what is there: 166 files of the three kinds."""
    others = [p for p in GOLDEN.glob("3.*/*/*.json") if p not in FILES]
    assert len(FILES) == 166
    assert {path.name.split("-")[0] for path in others} == {"index.json", "task"}


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_unknown_fields_change_nothing(path: Path) -> None:
    """A field that nobody knows, at every level of a file, is passed over, as Hadoop does."""
    original = json.loads(path.read_bytes())

    def sprinkle(value: Any, known: bool) -> Any:
        if isinstance(value, list):
            return [sprinkle(item, known) for item in value]
        if not isinstance(value, dict) or not known:
            return value
        nested = {k: sprinkle(v, k in ("commits", "etags")) for k, v in value.items()}
        return {"aNew": {"deep": [1, None, "ü"]}, **nested, "zNew": 1.5}

    data = orjson.dumps(sprinkle(original, known=True))
    assert read(path, data) == read(path, orjson.dumps(original))


@pytest.mark.parametrize(
    "path", [p for p in FILES if p.name.startswith("pending-")][::7], ids=name_of
)
def test_derived_values_are_those_of_hadoop(path: Path) -> None:
    """A pending made of a golden file's facts is the golden file: date, saved, partCount, order."""
    data = path.read_bytes()
    read = formats.decode_pending(data, name_of(path))
    made = formats.new_pending(
        uri=read.uri,
        upload_id=read.upload_id,
        bucket=read.bucket,
        destination_key=read.destination_key,
        created_ms=read.created,
        etags=tuple(read.parts),
        length=read.length,
        extra_data={},
        iostatistics=read.iostatistics,
    )
    written = pairs(formats.encode_pending(made, form_of(path)))
    assert [field for field in written if field[0] != documents.SEAL] == pairs(data)


def test_the_etag_of_the_whole_object_is_s3s() -> None:
    """MD5 of the parts' MD5s and their number; None where a part's etag is no MD5."""
    path = GOLDEN / "3.5.0" / "multipart" / "pending-1.json"
    read = formats.decode_pending(path.read_bytes(), name_of(path))
    parts = [part.etag.strip('"') for part in read.parts]
    digest = hashlib.md5(b"".join(map(bytes.fromhex, parts))).hexdigest()
    assert len(parts) == 3
    assert read.multipart_etag() == f'"{digest}-3"'
    assert pending(etags=(ETAG, UploadEtag('"abc"'))).multipart_etag() is None
    assert pending(etags=(UploadEtag(MD5),)).multipart_etag() == pending().multipart_etag()


# Writing ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ms", "date"),
    [
        (0, "Thu Jan 01 00:00:00 UTC 1970"),
        (1795239870230, "Sat Nov 21 05:44:30 UTC 2026"),
        (1709164800999, "Thu Feb 29 00:00:00 UTC 2024"),
    ],
)
def test_dates_are_javas(ms: int, date: str) -> None:
    """``Date.toString()`` in UTC, in English whatever the locale."""
    assert formats.java_date(ms) == date


TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)


@given(
    st.lists(
        st.tuples(TEXT.filter(bool), st.integers(0, 2**63 - 1)),
        max_size=5,
        unique_by=lambda c: c[0],
    ),
    st.dictionaries(TEXT, TEXT, max_size=3),
)
def test_any_set_comes_back_equal(commits: list[tuple[str, int]], extra: dict[str, str]) -> None:
    """Whatever keys, lengths and extra data: encoding and decoding changes nothing, and the URI of
    any key is one that Java could read."""
    value = formats.new_pendingset(
        job_id="1",
        commits=[
            pending(uri=java_uri("b", f"t/{key}"), destination_key=f"t/{key}", length=length)
            for key, length in commits
        ],
        extra_data=extra,
        iostatistics={},
    )
    data = formats.encode_pendingset(value)
    assert formats.decode_pendingset(data, "x") == value
    assert formats.encode_pendingset(formats.decode_pendingset(data, "x")) == data


def test_the_etags_are_written_in_either_form() -> None:
    """Objects as Hadoop 3.4.2 and later reads them, strings as 3.4.1 and before does."""
    objects = orjson.loads(formats.encode_pending(pending()))["etags"]
    assert objects == [{"etag": f'"{MD5}"', "checksumAlgorithm": "CRC32", "checksum": "NhCmhg=="}]
    strings = orjson.loads(formats.encode_pending(pending(), "strings"))["etags"]
    assert strings == [f'"{MD5}"']


def test_a_sets_commits_have_five_empty_maps() -> None:
    """As in Hadoop, statistics are the set's; each commit keeps the five empty maps."""
    busy = pending(iostatistics=Raw(b'{"counters":{"x":1}}'))
    written = orjson.loads(formats.encode_pendingset(pendingset(busy)))
    assert [list(c["iostatistics"].values()) for c in written["commits"]] == [[{}] * 5]
    assert written["iostatistics"] == {"counters": {"committer_bytes_uploaded": 10}}


def test_a_success_lists_at_most_100_files() -> None:
    """The names begin with "/", as Hadoop writes them, and end at Hadoop's limit."""
    made = formats.new_success(job_id="1", timestamp_ms=0, filenames=(f"t/{i}" for i in range(250)))
    read = formats.decode_success(formats.encode_success(made), "x")
    assert read == made
    assert len(read.filenames) == formats.SUCCESS_FILENAMES_MAX
    assert read.filenames[:2] == ("/t/0", "/t/1")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"upload_id": ""}, "uploadId"),
        ({"bucket": ""}, "bucket"),
        ({"destination_key": "a\nb"}, "destinationKey"),
        ({"destination_key": "a\ud800"}, ""),
        ({"uri": "s3a://b/a b"}, "uri"),
        ({"length": -1}, "length"),
        ({"length": 1.5}, "length"),
        ({"etags": ()}, "etags"),
        ({"etags": (UploadEtag(""),)}, "etags[0].etag"),
        ({"etags": (UploadEtag("x", "CRC32", None),)}, "etags[0].checksum"),
        ({"extra_data": {"a": 1}}, "extraData.a"),
        ({"text": "\ud800"}, ""),
    ],
)
def test_nothing_is_written_that_would_not_be_read(changes: dict[str, Any], field: str) -> None:
    """What a reader would refuse is refused before a byte is written, alone and in a set."""
    bad = pending(**changes)
    with pytest.raises(FormatError) as caught:
        formats.encode_pending(bad, source="the pending")
    assert (caught.value.source, caught.value.field) == ("the pending", field)
    with pytest.raises(FormatError) as caught:
        formats.encode_pendingset(pendingset(bad), source="the set")
    assert caught.value.field == (f"commits[0].{field}" if field else "")


def test_a_set_of_two_writers_of_one_key_is_never_written() -> None:
    """Two commits of one destination, or of two jobs, are refused."""
    with pytest.raises(FormatError, match="written to twice"):
        formats.encode_pendingset(pendingset(pending(), pending()))
    with pytest.raises(FormatError, match=r"commits\[0\]\.jobId"):
        formats.encode_pendingset(pendingset(pending(job_id="2")))


# Reading ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"version": ...},
        {"filename": ...},
        {"created": ..., "saved": ..., "date": ...},
        {"date": None, "text": None, "extraData": None, "iostatistics": None},
        {"extraData": ..., "iostatistics": ..., "partCount": ..., "text": ...},
        {"partCount": None},
        {"jobId": "", "taskId": ""},
        {"length": 2**63 - 1},
        {"etags": [{"etag": "x"}]},
        {"etags": [MD5]},
        {"etags": [{"etag": "x", "checksumAlgorithm": "crc32c", "checksum": "AAAA"}]},
        {"etags": [{"etag": '"x"', "checksumAlgorithm": None, "checksum": None, "partNumber": 1}]},
        {"uri": "s3a://b/ü日/a%20b+c&d=e"},
    ],
)
def test_what_hadoop_writes_or_may_leave_out_is_read(change: dict[str, Any]) -> None:
    """Lenient where nothing can be lost; and it can be written again."""
    read = formats.decode_pending(orjson.dumps(document(**change)), "x")
    assert formats.decode_pending(formats.encode_pending(read), "x") == read


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"version": 1}, "version"),
        ({"version": None}, "version"),
        ({"version": "2"}, "version"),
        ({"uri": ...}, "uri"),
        ({"uri": ""}, "uri"),
        ({"uri": "s3a://b/%zz"}, "uri"),
        ({"uploadId": ...}, "uploadId"),
        ({"uploadId": 7}, "uploadId"),
        ({"uploadId": "a\x00"}, "uploadId"),
        ({"uploadId": "x" * 5000}, "uploadId"),
        ({"bucket": "a/b"}, "bucket"),
        ({"destinationKey": None}, "destinationKey"),
        ({"destinationKey": "/x"}, "destinationKey"),
        ({"destinationKey": "ü" * 513}, "destinationKey"),
        ({"created": "now"}, "created"),
        ({"jobId": ...}, "jobId"),
        ({"taskId": None}, "taskId"),
        ({"text": 1}, "text"),
        ({"filename": []}, "filename"),
        ({"length": ...}, "length"),
        ({"length": None}, "length"),
        ({"length": "5"}, "length"),
        ({"length": 5.0}, "length"),
        ({"length": True}, "length"),
        ({"length": -1}, "length"),
        ({"length": 2**63}, "length"),
        ({"extraData": {"a": None}}, "extraData.a"),
        ({"extraData": []}, "extraData"),
        ({"iostatistics": []}, "iostatistics"),
        ({"partCount": 2}, "partCount"),
        ({"partCount": "1"}, "partCount"),
        ({"etags": ...}, "etags"),
        ({"etags": []}, "etags"),
        ({"etags": {}}, "etags"),
        ({"etags": ["x"] * 10_001}, "etags"),
        ({"etags": ["x", {"etag": "x"}]}, "etags[1]"),
        ({"etags": [{"etag": "x"}, "x"]}, "etags[1]"),
        ({"etags": ["x", None]}, "etags[1]"),
        ({"etags": [None]}, "etags[0]"),
        ({"etags": [""]}, "etags[0]"),
        ({"etags": ['"x']}, "etags[0]"),
        ({"etags": [{}]}, "etags[0].etag"),
        ({"etags": [{"etag": "a b"}]}, "etags[0].etag"),
        ({"etags": [{"etag": "x", "checksum": "AAAA"}]}, "etags[0].checksum"),
        (
            {"etags": [{"etag": "x", "checksumAlgorithm": "CRC32", "checksum": "A"}]},
            "etags[0].checksum",
        ),
        (
            {"etags": [{"etag": "x", "checksumAlgorithm": "SHA1", "checksum": "AAAA"}]},
            "etags[0].checksum",
        ),
        (
            {"etags": [{"etag": "x", "checksumAlgorithm": "new", "checksum": "ü==="}]},
            "etags[0].checksum",
        ),
    ],
)
def test_what_could_lose_data_is_refused_by_name(change: dict[str, Any], field: str) -> None:
    """Each field's rule, alone and as the second commit of a set."""
    bad = document(**change)
    with pytest.raises(FormatError) as caught:
        formats.decode_pending(orjson.dumps(bad), "t/x.csv.pending")
    assert (caught.value.source, caught.value.field) == ("t/x.csv.pending", field)
    assert caught.value.reason
    good = document(destinationKey="t/other", partCount=...)
    whole = {"version": 3, "jobId": "1", "commits": [good, bad]}
    with pytest.raises(FormatError) as caught:
        formats.decode_pendingset(orjson.dumps(whole), "a.pendingset")
    assert (caught.value.source, caught.value.field) == ("a.pendingset", f"commits[1].{field}")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"version": 2}, "version"),
        ({"jobId": ...}, "jobId"),
        ({"jobId": None}, "jobId"),
        ({"jobId": "2"}, "commits[0].jobId"),
        ({"commits": ...}, "commits"),
        ({"commits": None}, "commits"),
        ({"commits": {}}, "commits"),
        ({"commits": [None]}, "commits[0]"),
        ({"commits": [document(), document()]}, "commits[1].destinationKey"),
        ({"extraData": {"a": 1}}, "extraData.a"),
    ],
)
def test_a_set_that_could_lose_data_is_refused_by_name(change: dict[str, Any], field: str) -> None:
    """The rules of the set itself; Hadoop takes a set without commits for an empty one."""
    whole = {"version": 3, "jobId": "1", "commits": [document()]} | change
    data = orjson.dumps({name: value for name, value in whole.items() if value is not ...})
    with pytest.raises(FormatError) as caught:
        formats.decode_pendingset(data, "a.pendingset")
    assert caught.value.field == field


@pytest.mark.parametrize(
    "statistics",
    ['{"a":1,"a":1}', '{"a":18446744073709551616}', '"x"', '{"a":' * 16 + "1" + "}" * 16],
)
def test_statistics_are_held_to_the_limits(statistics: str) -> None:
    """Nothing depends on them, but they are read: of a set, of a commit, and of a `.pending`."""
    odd = document() | {"iostatistics": "HERE"}
    for whole, read in (
        (odd, formats.decode_pending),
        ({"jobId": "1", "commits": [odd]}, formats.decode_pendingset),
        ({"jobId": "1", "commits": [], "iostatistics": "HERE"}, formats.decode_pendingset),
    ):
        data = orjson.dumps(whole).replace(b'"HERE"', statistics.encode())
        with pytest.raises(FormatError):
            read(data, "x")


def test_readers_are_made_at_import() -> None:
    """Threads that make one at once crash the process: in a new one every kind is read without
    making any."""
    program = (
        "import sys, msgspec\n"
        "from magic_committer.hadoop import formats, manifests\n"
        "msgspec.json.Decoder = msgspec.json.decode = None\n"
        "formats.decode_pending(bytes.fromhex(sys.argv[1]), 'x')\n"
        "formats.decode_pendingset(bytes.fromhex(sys.argv[2]), 'x')\n"
        "formats.decode_success(b'{\"jobId\":\"1\"}', 'x')\n"
        "manifest = manifests.TaskManifest('j', 'u', 't', 'a')\n"
        "manifests.encode_manifest(manifest, 'file:///t/', 'x/a')\n"
    )
    files = formats.encode_pending(pending()), formats.encode_pendingset(pendingset())
    command = (sys.executable, "-c", program, *(one.hex() for one in files))
    assert subprocess.run(command, timeout=300).returncode == 0


def test_a_text_of_another_class_is_written() -> None:
    """As numpy's are."""

    class Text(str):
        pass

    data = formats.encode_pending(pending(task_id=Text("a"), extra_data={"a": Text("b")}))
    assert formats.decode_pending(data, "x").extra_data == {"a": "b"}


BOMB = b'{"version":2,"x":' + b"[" * 500 + b"]" * 500 + b"}"


@pytest.mark.parametrize(
    ("data", "field", "reason"),
    [
        (b"", "", "0 bytes"),
        (b"null", "", "null"),
        (b"[]", "", "an object"),
        (b"{", "", "not JSON"),
        (b"{}{}", "", "not JSON"),
        (b'{"length":NaN}', "", "not JSON"),
        (b'{"a":"\\ud800"}', "", "not JSON"),
        (b'{"length":["\\ud800"]}', "", "not JSON"),
        (b'{"a":"\xff"}', "", "not JSON"),
        (b"\xef\xbb\xbf{}", "", "not JSON"),
        ("{}".encode("utf-16"), "", "not JSON"),
        (b'{"length":1e999}', "", "not JSON"),
        (b'{"length":1,"length":2}', "length", "twice"),
        (b'{"x":{"length":1,"l\\u0065ngth":2}}', "length", "twice"),
        (b'{"etags":[1,18446744073709551616]}', "etags[1]", "64 bits"),
        (b'{"x":{"length":-' + b"9" * 5000 + b"}}", "", "not JSON"),
        (b'{"x":{"length":-' + b"9" * 300 + b"}}", "x.length", "64 bits"),
        (BOMB, "", "nested"),
        (b"[" * 9_000, "", "not JSON"),
        (b'{"a":' * 9_000, "", "not JSON"),
        (b"[" * 100_000, "", "values in"),
    ],
)
def test_what_is_no_plain_object_is_refused(data: bytes, field: str, reason: str) -> None:
    """Not JSON, not one object, ambiguous, or deep: by all three readers, in the same words."""
    readers: list[Callable[[bytes, str], object]] = [
        formats.decode_pending,
        formats.decode_pendingset,
        formats.decode_success,
    ]
    for read in readers:
        with pytest.raises(FormatError, match=reason) as caught:
            read(data, "key")
        assert (caught.value.source, caught.value.field) == ("key", field)


@pytest.mark.parametrize(
    ("read", "limit"),
    [
        (formats.decode_pending, formats.PENDING_BYTES_MAX),
        (formats.decode_pendingset, formats.PENDINGSET_BYTES_MAX),
        (formats.decode_success, formats.SUCCESS_BYTES_MAX),
    ],
)
def test_a_file_over_the_limit_is_not_even_parsed(
    read: Callable[[bytes, str], object], limit: int
) -> None:
    """The size is looked at first, and the message says the limit."""
    with pytest.raises(FormatError, match=str(limit)):
        read(b" " * (limit + 1), "key")


def test_a_deep_document_is_not_written() -> None:
    """The limit on depth holds for writing, also for what the interpreter cannot recurse into."""
    deep: dict[str, Any] = {}
    for _ in range(sys.getrecursionlimit() * 2):
        deep = {"a": deep}
    with pytest.raises(FormatError, match="nested"):
        formats.encode_pendingset(replace(pendingset(), iostatistics=deep))


def test_a_file_too_large_to_be_read_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits on size hold for writing too."""
    monkeypatch.setattr(formats, "PENDING_BYTES_MAX", 100)
    with pytest.raises(FormatError, match="100"):
        formats.encode_pending(pending())


# Seals --------------------------------------------------------------------------------------------


def test_a_seal_is_broken_by_any_change() -> None:
    """A commit gone, a value changed, two commits in another order: well-formed, and refused."""
    sealed = orjson.loads(formats.encode_pendingset(pendingset()))
    gone = sealed | {"commits": sealed["commits"][:1]}
    turned = sealed | {"commits": sealed["commits"][::-1]}
    other = sealed | {"commits": [sealed["commits"][0], sealed["commits"][1] | {"uploadId": "U2"}]}
    for changed in (gone, turned, other, sealed | {"contentSha256": None}):
        with pytest.raises(FormatError) as caught:
            formats.decode_pendingset(orjson.dumps(changed), "x")
        assert caught.value.field == documents.SEAL
    for changed in (gone, turned, other):
        assert formats.decode_pendingset(orjson.dumps(bare(changed)), "x").commits


def test_the_name_of_the_seal_may_be_a_text() -> None:
    """Only the last field of a document is its seal."""
    value = pending(extra_data={documents.SEAL: "x"})
    sealed = formats.encode_pending(value)
    assert formats.decode_pending(sealed, "x") == value
    assert formats.decode_pending(orjson.dumps(bare(orjson.loads(sealed))), "x") == value
    with pytest.raises(FormatError, match="twice"):
        formats.decode_pending(sealed.replace(b'"text"', b'"content\\u0053ha256":"","text"'), "x")


def test_a_seal_does_not_depend_on_white_space() -> None:
    """Somebody's pretty-printer does no harm."""
    data = formats.encode_pendingset(pendingset())
    pretty = json.dumps(json.loads(data), indent=2).encode()
    assert formats.decode_pendingset(pretty, "x") == pendingset()


# Success ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [None, "", "SuccessData/2", 1, "x - at `$[...]`", "` - at `$.x[7]"]
)
def test_a_success_of_another_format_is_refused(name: object) -> None:
    """A wrong name, or null, is refused; a missing one is right, as from Hadoop 3.3.5 on."""
    with pytest.raises(FormatError) as caught:
        formats.decode_success(orjson.dumps({"name": name, "jobId": "1"}), "_SUCCESS")
    assert caught.value.field == "name"
    assert formats.decode_success(b'{"jobId":"1"}', "_SUCCESS").job_id == "1"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"success": "yes"}, "success"),
        ({"timestamp": 1.5}, "timestamp"),
        ({"jobId": 1}, "jobId"),
        ({"metrics": {"a": "1"}}, "metrics.a"),
        ({"metrics": {"a": 1e300}}, "metrics.a"),
        ({"metrics": {"a": True}}, "metrics.a"),
        ({"diagnostics": {"a": [1]}}, "diagnostics.a"),
        ({"diagnostics": {"a": None}}, "diagnostics.a"),
        ({"filenames": [1]}, "filenames[0]"),
        ({"filenames": {}}, "filenames"),
    ],
)
def test_a_success_with_wrong_types_is_refused(change: dict[str, Any], field: str) -> None:
    """Each field has its type; the error names it."""
    with pytest.raises(FormatError) as caught:
        formats.decode_success(orjson.dumps(change), "_SUCCESS")
    assert caught.value.field == field


def test_a_success_is_read_where_hadoop_reads_it() -> None:
    """Of a fraction among the metrics the whole part counts, of a number or true among the
    diagnostics its text, as Jackson reads them; and it can be written again."""
    document = {
        "metrics": {"a": 2.75, "b": -0.5, "c": 7},
        "diagnostics": {"n": 8, "f": 1.5, "t": True, "s": "x"},
    }
    read = formats.decode_success(orjson.dumps(document), "_SUCCESS")
    assert read.metrics == {"a": 2, "b": 0, "c": 7}
    assert read.diagnostics == {"n": "8", "f": "1.5", "t": "true", "s": "x"}
    assert formats.decode_success(formats.encode_success(read), "_SUCCESS") == read


def test_the_manifest_committers_success_is_read() -> None:
    """Its pretty-printed file, without nulls and with a date of another form."""
    path = GOLDEN / "3.5.0" / "manifest-committer" / "_SUCCESS.json"
    read = formats.decode_success(path.read_bytes(), name_of(path))
    assert read.committer.endswith("ManifestCommitter")
    assert read.success
    assert read.job_id == "job_202601010000_0001"
    assert len(read.filenames) == 3


MANIFESTS = Path(__file__).parents[1] / "golden" / "3.5.0" / "manifest-committer"
ROOT = "file:///data/t/"
TASKS = "_temporary/manifest_j/00/tasks"


def test_a_manifest_is_read_as_it_was_written() -> None:
    """Blanks, percent signs and letters of all languages come back."""
    files = tuple(ManifestFile(n, 3, "e") for n in ("a b.txt", "dt=1/%25.csv", "日/ü+&.x"))
    manifest = TaskManifest("j", "u", "t", "a0", files, ("empty/one",))
    data = encode_manifest(manifest, ROOT, f"{TASKS}/a0")
    assert decode_manifest(data, ROOT, TASKS, "m") == manifest


def test_a_manifest_of_hadoop_is_read() -> None:
    """What Hadoop 3.5.0 wrote: two files, one of them in a directory, and no UUID of ours."""
    data = (MANIFESTS / "task-manifest-1.json").read_bytes()
    tasks = "_temporary/job_202601010000_0001/00/tasks"
    manifest = decode_manifest(data, ROOT, tasks, "golden")
    assert manifest.attempt == "attempt_202601010000_0001_m_000000_0"
    assert manifest.files == (ManifestFile("a b.txt", 1), ManifestFile("dt=1/part-0.txt", 5))
    assert (manifest.directories, manifest.uuid) == (("dt=1",), "")
    assert sum(file.size for file in manifest.files) == 6


@pytest.mark.parametrize("missing", ["type", "version", "jobId", "taskID", "taskAttemptID"])
def test_a_manifest_says_what_it_is(missing: str) -> None:
    """Nothing that a reader goes by is made up."""
    document = orjson.loads(encode_manifest(TaskManifest("j", "u", "t", "a0"), ROOT, "x/a0"))
    del document[missing]
    with pytest.raises(FormatError) as caught:
        decode_manifest(orjson.dumps(document), ROOT, TASKS, "m")
    assert caught.value.field == missing


def test_a_manifest_has_hadoops_form() -> None:
    """Source and destination are URIs as Hadoop 3.5.0 writes and reads them."""
    manifest = TaskManifest("j", "u", "t", "a0", (ManifestFile("a b.txt", 1),))
    document = orjson.loads(encode_manifest(manifest, ROOT, f"{TASKS}/a0"))
    assert document["type"].endswith(".manifest.files.TaskManifest/1")
    assert document["files"] == [
        {"s": f"file:/data/t/{TASKS}/a0/a%20b.txt", "d": "file:/data/t/a%20b.txt", "z": 1}
    ]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("file:/etc/passwd", "file:/data/t/passwd"),
        (f"file:/data/t/{TASKS}/other/x", "file:/data/t/x"),
        (f"file:/data/t/{TASKS}/a0/x", "file:/data/u/x"),
        (f"file:/data/t/{TASKS}/a0/../x", "file:/data/t/../x"),
        (f"file:/data/t/{TASKS}/a0/_temporary/x", "file:/data/t/_temporary/x"),
    ],
)
def test_a_forged_manifest_moves_no_other_file(source: str, target: str) -> None:
    """A source outside of the attempt, or a destination outside of the job's, is refused."""
    manifest = TaskManifest("j", "u", "t", "a0")
    document = orjson.loads(encode_manifest(manifest, ROOT, f"{TASKS}/a0"))
    document["files"] = [{"s": source, "d": target, "z": 1}]
    with pytest.raises(FormatError):
        decode_manifest(orjson.dumps(document), ROOT, TASKS, "m")
