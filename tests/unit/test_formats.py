"""`.pending`, `.pendingset` and `_SUCCESS`: what Hadoop wrote, and the rules of ours."""

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
from magic_committer.hadoop import documents
from magic_committer.hadoop.documents import EtagForm, Pending, PendingSet, UploadEtag
from magic_committer.hadoop.manifests import (
    ManifestFile,
    TaskManifest,
    decode_manifest,
    encode_manifest,
)
from magic_committer.hadoop.paths import java_uri
from tests.promises.hands import raises

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


DECODE: dict[str, Callable[[bytes, str], Any]] = {
    "pendingset": documents.decode_pendingset,
    "pending": documents.decode_pending,
    "_SUCCESS": documents.decode_success,
    "summary": documents.decode_success,
}


def read(path: Path, data: bytes) -> Any:
    """Decode a golden file."""
    return DECODE[re.split(r"[-.]", path.name)[0]](data, name_of(path))


def again(path: Path, data: bytes) -> bytes:
    """Decode and encode a golden file; without our seal, which Hadoop's have not."""
    value = read(path, data)
    if isinstance(value, PendingSet):
        written = documents.encode_pendingset(value, form_of(path))
    elif isinstance(value, Pending):
        written = documents.encode_pending(value, form_of(path))
    else:
        return documents.encode_success(value)
    return re.sub(rb',"contentSha256":"[0-9a-f]{64}"}$', b"}", written)


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
    return documents.new_pending(**(values | changes))


def pendingset(*commits: Pending) -> PendingSet:
    return documents.new_pendingset(
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
    changed = bare(orjson.loads(documents.encode_pending(pending()))) | changes
    return {name: value for name, value in changed.items() if value is not ...}


# Golden files -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_what_hadoop_wrote_comes_out_as_it_went_in(path: Path) -> None:
    """Of every release: compact `.pending`s byte for byte, all else with the same values."""
    assert len(FILES) == 166
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


def refused(
    call: Callable[..., object], *args: Any, field: str | None = None, match: str = "."
) -> FormatError:
    """What a call is refused with: an error that names the field, and has its reason."""
    caught = raises(FormatError, call, *args, match=match)
    assert field is None or caught.field == field
    assert caught.reason
    return caught


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
    told = documents.decode_pending(data, name_of(path))
    facts = ("uri", "upload_id", "bucket", "destination_key", "length", "iostatistics")
    made = documents.new_pending(
        created_ms=told.created,
        etags=tuple(told.parts),
        extra_data={},
        **{name: getattr(told, name) for name in facts},
    )
    written = pairs(documents.encode_pending(made, form_of(path)))
    assert [field for field in written if field[0] != documents.SEAL] == pairs(data)


def test_the_etag_of_the_whole_object_is_s3s() -> None:
    """MD5 of the parts' MD5s and their number; None where a part's etag is no MD5."""
    path = GOLDEN / "3.5.0" / "multipart" / "pending-1.json"
    read = documents.decode_pending(path.read_bytes(), name_of(path))
    parts = [part.etag.strip('"') for part in read.parts]
    digest = hashlib.md5(b"".join(map(bytes.fromhex, parts))).hexdigest()
    assert len(parts) == 3
    assert read.multipart_etag() == f'"{digest}-3"'
    assert pending(etags=(ETAG, UploadEtag('"abc"'))).multipart_etag() is None
    assert pending(etags=(UploadEtag(MD5),)).multipart_etag() == pending().multipart_etag()


# Writing ------------------------------------------------------------------------------------------


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
    """Whatever keys, lengths and extra data: the URI of any key is one that Java could read."""
    value = documents.new_pendingset(
        job_id="1",
        commits=[
            pending(uri=java_uri("b", f"t/{key}"), destination_key=f"t/{key}", length=length)
            for key, length in commits
        ],
        extra_data=extra,
        iostatistics={},
    )
    data = documents.encode_pendingset(value)
    assert documents.decode_pendingset(data, "x") == value
    assert documents.encode_pendingset(documents.decode_pendingset(data, "x")) == data


def test_a_sets_commits_have_five_empty_maps() -> None:
    """As in Hadoop, statistics are the set's; each commit keeps the five empty maps."""
    busy = pending(iostatistics=Raw(b'{"counters":{"x":1}}'))
    written = orjson.loads(documents.encode_pendingset(pendingset(busy)))
    assert [list(c["iostatistics"].values()) for c in written["commits"]] == [[{}] * 5]
    assert written["iostatistics"] == {"counters": {"committer_bytes_uploaded": 10}}


def test_a_text_of_another_class_is_written() -> None:
    """As numpy's are."""
    text = type("Text", (str,), {})
    data = documents.encode_pending(pending(task_id=text("a"), extra_data={"a": text("b")}))
    assert documents.decode_pending(data, "x").extra_data == {"a": "b"}


def test_a_success_names_the_first_files_only() -> None:
    """The names begin with "/", as Hadoop writes them, and end at the limit."""
    made = documents.new_success(
        job_id="1", timestamp_ms=0, filenames=(f"t/{i}" for i in range(250))
    )
    read = documents.decode_success(documents.encode_success(made), "x")
    assert read == made
    assert len(read.filenames) == documents.SUCCESS_FILENAMES_MAX
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
    alone = refused(documents.encode_pending, bad, field=field)
    assert alone.source.startswith("pending of ")
    in_set = f"commits[0].{field}" if field else ""
    refused(documents.encode_pendingset, pendingset(bad), field=in_set)


def test_a_set_of_two_writers_of_one_key_is_never_written() -> None:
    """Two commits of one destination, or of two jobs, are refused."""
    twice, of_two = pendingset(pending(), pending()), pendingset(pending(job_id="2"))
    refused(documents.encode_pendingset, twice, match="written to twice")
    refused(documents.encode_pendingset, of_two, match=r"commits\[0\]\.jobId")


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
    read = documents.decode_pending(orjson.dumps(document(**change)), "x")
    assert documents.decode_pending(documents.encode_pending(read), "x") == read


def etag(**fields: Any) -> list[Any]:
    return [{"etag": "x"} | fields]


WRONG: dict[str, list[Any]] = {
    "version": [1, None, "2"],
    "uri": [..., "", "s3a://b/%zz"],
    "uploadId": [..., 7, "a\x00", "x" * 5000],
    "bucket": ["a/b"],
    "destinationKey": [None, "/x", "ü" * 513],
    "created": ["now"],
    "jobId": [...],
    "taskId": [None],
    "text": [1],
    "filename": [[]],
    "length": [..., None, "5", 5.0, True, -1, 2**63],
    "extraData": [[]],
    "extraData.a": [{"a": None}],
    "iostatistics": [[]],
    "partCount": [2, "1"],
    "etags": [..., [], {}, ["x"] * 10_001],
    "etags[1]": [["x", {"etag": "x"}], [{"etag": "x"}, "x"], ["x", None]],
    "etags[0]": [[None], [""], ['"x']],
    "etags[0].etag": [[{}], etag(etag="a b")],
    "etags[0].checksum": [
        etag(checksum="AAAA"),
        etag(checksumAlgorithm="CRC32", checksum="A"),
        etag(checksumAlgorithm="SHA1", checksum="AAAA"),
        etag(checksumAlgorithm="new", checksum="ü==="),
    ],
}
"""Of a `.pending`: by the place that an error names, values of its first field; ``...``: none."""


@pytest.mark.parametrize("field", WRONG)
def test_what_could_lose_data_is_refused_by_name(field: str) -> None:
    """Each field's rule, alone and as the second commit of a set."""
    good = document(destinationKey="t/other", partCount=...)
    for value in WRONG[field]:
        bad = document(**{re.split(r"[.\[]", field)[0]: value})
        alone = refused(documents.decode_pending, orjson.dumps(bad), "t/x.csv.pending", field=field)
        assert alone.source == "t/x.csv.pending"
        whole = orjson.dumps({"version": 3, "jobId": "1", "commits": [good, bad]})
        refused(documents.decode_pendingset, whole, "a.pendingset", field=f"commits[1].{field}")


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
    refused(documents.decode_pendingset, data, "a.pendingset", field=field)


@pytest.mark.parametrize(
    "statistics",
    ['{"a":1,"a":1}', '{"a":18446744073709551616}', '"x"', '{"a":' * 16 + "1" + "}" * 16],
)
def test_statistics_are_held_to_the_limits(statistics: str) -> None:
    """Nothing depends on them, but they are read: of a set, of a commit, and of a `.pending`."""
    odd = document() | {"iostatistics": "HERE"}
    for whole, decode in (
        (odd, documents.decode_pending),
        ({"jobId": "1", "commits": [odd]}, documents.decode_pendingset),
        ({"jobId": "1", "commits": [], "iostatistics": "HERE"}, documents.decode_pendingset),
    ):
        refused(decode, orjson.dumps(whole).replace(b'"HERE"', statistics.encode()), "x")


def test_readers_are_made_at_import() -> None:
    """Threads that make one at once crash the process: every kind is read without making any."""
    program = (
        "import sys, msgspec\n"
        "from magic_committer.hadoop import documents, manifests\n"
        "msgspec.json.Decoder = msgspec.json.decode = None\n"
        "documents.decode_pending(bytes.fromhex(sys.argv[1]), 'x')\n"
        "documents.decode_pendingset(bytes.fromhex(sys.argv[2]), 'x')\n"
        "documents.decode_success(b'{\"jobId\":\"1\"}', 'x')\n"
        "manifest = manifests.TaskManifest('j', 'u', 't', 'a')\n"
        "manifests.encode_manifest(manifest, 'file:///t/', 'x/a')\n"
    )
    files = documents.encode_pending(pending()), documents.encode_pendingset(pendingset())
    command = (sys.executable, "-c", program, *(one.hex() for one in files))
    assert subprocess.run(command, timeout=300).returncode == 0


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
    for decode in DECODE.values():
        assert refused(decode, data, "key", field=field, match=reason).source == "key"


@pytest.mark.parametrize(
    ("kind", "limit"),
    [
        ("pending", documents.PENDING_BYTES_MAX),
        ("pendingset", documents.PENDINGSET_BYTES_MAX),
        ("_SUCCESS", documents.SUCCESS_BYTES_MAX),
    ],
)
def test_a_file_over_the_limit_is_not_even_parsed(kind: str, limit: int) -> None:
    """The size is looked at first, and the message says the limit."""
    refused(DECODE[kind], b" " * (limit + 1), "key", match=str(limit))


def test_what_is_too_deep_or_too_large_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits hold for writing, also for what the interpreter cannot recurse into."""
    deep: dict[str, Any] = {}
    for _ in range(sys.getrecursionlimit() * 2):
        deep = {"a": deep}
    deep_set = replace(pendingset(), iostatistics=deep)
    refused(documents.encode_pendingset, deep_set, match="nested")
    for number in (2**64, -(2**63) - 1):
        large = replace(pendingset(), iostatistics={"counters": {"a": number}})
        refused(documents.encode_pendingset, large, match="beyond 64 bits")
    monkeypatch.setattr(documents, "PENDING_BYTES_MAX", 100)
    refused(documents.encode_pending, pending(), match="100")


# Seals --------------------------------------------------------------------------------------------


def test_a_seal_is_broken_by_any_change() -> None:
    """Well-formed, and refused. Somebody's pretty-printer does no harm."""
    data = documents.encode_pendingset(pendingset())
    pretty = json.dumps(json.loads(data), indent=2).encode()
    assert documents.decode_pendingset(pretty, "x") == pendingset()
    sealed = orjson.loads(data)
    first, second = sealed["commits"]
    for commits in ([first], [second, first], [first, second | {"uploadId": "U2"}]):
        changed = sealed | {"commits": commits}
        refused(documents.decode_pendingset, orjson.dumps(changed), "x", field=documents.SEAL)
        assert documents.decode_pendingset(orjson.dumps(bare(changed)), "x").commits
    none = orjson.dumps(sealed | {"contentSha256": None})
    refused(documents.decode_pendingset, none, "x", field=documents.SEAL)


def test_the_name_of_the_seal_may_be_a_text() -> None:
    """Only the last field of a document is its seal."""
    value = pending(extra_data={documents.SEAL: "x"})
    sealed = documents.encode_pending(value)
    assert documents.decode_pending(sealed, "x") == value
    assert documents.decode_pending(orjson.dumps(bare(orjson.loads(sealed))), "x") == value
    forged = sealed.replace(b'"text"', b'"content\\u0053ha256":"","text"')
    refused(documents.decode_pending, forged, "x", match="twice")
    inner = orjson.dumps({documents.SEAL: "x"} | bare(orjson.loads(sealed)))
    seal = f',"{documents.SEAL}":"{hashlib.sha256(inner).hexdigest()}"}}'
    refused(documents.decode_pending, inner[:-1] + seal.encode(), "x", match="stands twice")


# Success ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "values"),
    [
        ("name", [None, "", "SuccessData/2", 1, "x - at `$[...]`", "` - at `$.x[7]"]),
        ("success", ["yes"]),
        ("timestamp", [1.5]),
        ("jobId", [1]),
        ("metrics.a", [{"a": "1"}, {"a": 1e300}, {"a": True}]),
        ("diagnostics.a", [{"a": [1]}, {"a": None}]),
        ("filenames", [{}]),
        ("filenames[0]", [[1]]),
    ],
)
def test_a_success_with_wrong_types_is_refused(place: str, values: list[Any]) -> None:
    """The error names the field. A missing name is right, another one is another format."""
    for value in values:
        document = {
            re.split(r"[.\[]", place)[0]: value,
            **({} if place == "jobId" else {"jobId": "1"}),
        }
        refused(documents.decode_success, orjson.dumps(document), "_SUCCESS", field=place)
    assert documents.decode_success(b'{"jobId":"1"}', "_SUCCESS").job_id == "1"


def test_a_success_is_read_where_hadoop_reads_it() -> None:
    """Fractions are cut and diagnostics are texts, as Jackson has it; it is written again."""
    document = {
        "metrics": {"a": 2.75, "b": -0.5, "c": 7},
        "diagnostics": {"n": 8, "f": 1.5, "t": True, "s": "x"},
    }
    read = documents.decode_success(orjson.dumps(document), "_SUCCESS")
    assert read.metrics == {"a": 2, "b": 0, "c": 7}
    assert read.diagnostics == {"n": "8", "f": "1.5", "t": "true", "s": "x"}
    assert documents.decode_success(documents.encode_success(read), "_SUCCESS") == read


MANIFESTS = GOLDEN / "3.5.0" / "manifest-committer"


ROOT = "file:///data/t/"
TASKS = "_temporary/manifest_j/00/tasks"


def manifest(**files: Any) -> dict[str, Any]:
    """A manifest of attempt ``a0`` as a document."""
    made = TaskManifest("j", "u", "t", "a0", **files)
    document: dict[str, Any] = orjson.loads(encode_manifest(made, ROOT, f"{TASKS}/a0"))
    return document


def test_a_manifest_is_read_as_it_was_written() -> None:
    """Letters of all languages come back; source and destination are URIs as Hadoop's."""
    files = tuple(ManifestFile(n, 3, "e") for n in ("a b.txt", "dt=1/%25.csv", "日/ü+&.x"))
    document = manifest(files=files)
    made = TaskManifest("j", "u", "t", "a0", files)
    assert decode_manifest(orjson.dumps(document), ROOT, TASKS, "m") == made
    assert document["type"].endswith(".manifest.files.TaskManifest/1")
    assert manifest(files=(ManifestFile("a b.txt", 1),))["files"] == [
        {"s": f"file:/data/t/{TASKS}/a0/a%20b.txt", "d": "file:/data/t/a%20b.txt", "z": 1}
    ]


def test_a_manifest_of_hadoop_is_read() -> None:
    """What Hadoop 3.5.0 wrote: two files, one of them in a directory, and no UUID of ours."""
    data = (MANIFESTS / "task-manifest-1.json").read_bytes()
    tasks = "_temporary/job_202601010000_0001/00/tasks"
    found = decode_manifest(data, ROOT, tasks, "golden")
    assert found.attempt == "attempt_202601010000_0001_m_000000_0"
    assert found.files == (ManifestFile("a b.txt", 1), ManifestFile("dt=1/part-0.txt", 5))
    assert found.uuid == ""


@pytest.mark.parametrize("missing", ["type", "version", "jobId", "taskID", "taskAttemptID"])
def test_a_manifest_says_what_it_is(missing: str) -> None:
    """Nothing that a reader goes by is made up."""
    document = manifest()
    del document[missing]
    refused(decode_manifest, orjson.dumps(document), ROOT, TASKS, "m", field=missing)


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
    document = manifest() | {"files": [{"s": source, "d": target, "z": 1}]}
    refused(decode_manifest, orjson.dumps(document), ROOT, TASKS, "m")
