"""``inspect``: every file that Hadoop or we wrote is printed and valid; of a broken one field and
reason are named, in every format, and never a traceback."""

from __future__ import annotations

import csv
import io
import random
import re
from pathlib import Path
from typing import Any

import orjson
import pytest

import magic_committer as mc
from magic_committer.cli import output
from magic_committer.cli.app import FORMATS
from magic_committer.cli.inspecting import FILE_KINDS, kind_by_content
from magic_committer.commit.fence import SignOfLife
from magic_committer.hadoop.formats import PENDING_BYTES_MAX
from magic_committer.protocol.plan import Plan, PlannedSet
from magic_committer.protocol.record import ObjectRef
from magic_committer.stores.memory import MemoryStore, Request
from tests.cli.conftest import Command, Ran
from tests.concrete import uploads_of

GOLDEN = Path(__file__).parent.parent / "golden"
FILES = sorted(
    path
    for path in GOLDEN.glob("3.*/*/*.json")
    if path.name.startswith(("pending", "_SUCCESS", "summary"))
)
SAMPLES = {
    "pending": GOLDEN / "3.5.0/multipart-CRC32C/pending-1.json",
    "pendingset": GOLDEN / "3.5.0/magic/pendingset-1.json",
    "success": GOLDEN / "3.5.0/magic/_SUCCESS.json",
}
MUTATIONS_OF_EACH = 60


def kind_of(path: Path) -> str:
    begins = path.name.partition("-")[0]
    return "success" if begins in ("_SUCCESS.json", "summary.json") else begins


def verdict(ran: Ran, how: str) -> dict[str, Any]:
    """What ``--validate`` said, from any format."""
    if how == "csv":
        (row,) = csv.DictReader(io.StringIO(ran.out))
        return {**row, "valid": row["valid"] == "true"}
    if how == "table":
        return {"valid": ": a " in ran.out, "reason": ran.out, "field": ran.out}
    told: dict[str, Any] = orjson.loads(ran.out)
    assert (told["schema"], told["type"]) == (1, "validation")
    return told


@pytest.fixture
def ours(memory_s3: MemoryStore) -> dict[str, bytes]:
    """One of each of our own files, as a job leaves them on the store."""
    seen: dict[str, bytes] = {}

    def look(request: Request, reply: object) -> None:
        key = request.key
        control = "__magic_" in key and "/probe-" not in key and not key.endswith(".csv")
        if request.verb == "put" and (control or key.endswith("_SUCCESS")):
            seen[request.key] = memory_s3.body(request.key)

    memory_s3.after = look
    memory_s3.put_object("t/old.csv", b"old")
    job = mc.start("s3://bucket/t", mode="replace", track="s3")
    with job.task("7") as task:
        for name in ("x.csv", "y.csv"):
            with task.open(name) as file:
                file.write(b"data")
    assert SignOfLife(uploads_of(job._committer()).runtime, job._started).give()
    job.commit([task.result], batch=mc.StreamBatch("q", 7))
    memory_s3.after = None
    return seen


# What is right ------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES, ids=lambda path: "/".join(path.parts[-3:]))
def test_every_golden_file_is_valid_and_printed(command: Command, path: Path) -> None:
    """By its content alone; for people and as JSON of a versioned schema."""
    told = command("inspect", path, "--validate", "--format", "json").json()
    assert (told["valid"], told["as"]) == (True, kind_of(path))
    assert command("inspect", path).code == 0
    ran = command("inspect", path, "--format", "json")
    assert ran.code == 0
    assert ran.json()["schema"] == 1


def test_hadoops_pendingset_is_told_file_by_file(command: Command) -> None:
    """Key, upload id, parts, bytes, task of each; their sum in the summary."""
    told = command("inspect", SAMPLES["pendingset"], "--format", "json").json()
    written = orjson.loads(SAMPLES["pendingset"].read_bytes())
    assert [row["key"] for row in told["rows"]] == [c["destinationKey"] for c in written["commits"]]
    assert [row["upload_id"] for row in told["rows"]] == [c["uploadId"] for c in written["commits"]]
    assert told["summary"]["bytes"] == sum(c["length"] for c in written["commits"])
    assert told["rows"][0]["created"] == written["commits"][0]["created"] / 1000


def test_a_success_is_told(command: Command) -> None:
    """Committer, job, times, names and the counters that matter."""
    ran = command("inspect", SAMPLES["success"])
    assert re.search(r"^committer +magic$", ran.out, re.MULTILINE)
    assert "metrics: committer_bytes_committed" in ran.out
    assert len(re.findall(r"^filenames +/g/", ran.out, re.MULTILINE)) == 3


def test_each_of_our_own_files_is_valid_from_the_store(
    command: Command, memory_s3: MemoryStore, ours: dict[str, bytes]
) -> None:
    """Record, plan, pending, pendingset, sign of life and marker of a job, by URL."""
    kinds = set()
    for key, body in ours.items():
        memory_s3.put_object(key, body)
        url = f"s3://bucket/{key}"
        told = command("inspect", url, "--validate", "--format", "json").json()
        assert told["valid"], told
        kinds.add(told["as"])
        assert kind_by_content(body, key) == told["as"]
        for how in FORMATS:
            ran = command("inspect", url, "--format", how)
            assert (ran.code, bool(ran.out)) == (0, True)
    assert kinds == set(FILE_KINDS)


def test_a_file_can_come_from_stdin(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """``-`` has no name: its content tells what it is."""
    data = SAMPLES["pending"].read_bytes()

    class Stdin:
        buffer = io.BytesIO(data)

    monkeypatch.setattr("sys.stdin", Stdin)
    assert command("inspect", "-", "--format", "json").json()["type"] == "pending"


def test_a_staging_committers_set_has_no_suffix(command: Command, tmp_path: Path) -> None:
    """It is a pendingset by its content."""
    path = tmp_path / "task_202601010000_0001_m_000000"
    path.write_bytes((GOLDEN / "3.5.0/directory/pendingset-1.json").read_bytes())
    told = command("inspect", path, "--validate", "--format", "json")
    assert (told.code, told.json()["as"]) == (0, "pendingset")


def test_a_large_set_is_cut_for_people_only(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table says how many it does not show; the formats for programs have all."""
    monkeypatch.setattr(output, "ROWS_MAX", 3)
    sets = tuple(PlannedSet(f"job-1/00/a{n}.pendingset", '"e"', str(n), f"a{n}") for n in range(5))
    deletes = tuple(ObjectRef(f"t/{n}", '"e"') for n in range(50))
    path = tmp_path / "_plan-1.json"
    path.write_bytes(Plan("1", "2" * 32, "n", 9, 99, sets, deletes, ("dt=1/",)).encode())
    out = command("inspect", path).out
    assert "and 2 more: --format jsonl has all" in out
    assert len(re.findall(r"^deletes +t/\d+$", out, re.MULTILINE)) == 20
    assert re.search(r"^deletes +and 30 more$", out, re.MULTILINE)
    assert out.count(".pendingset") == 3
    assert command("inspect", path, "--format", "jsonl").out.count(".pendingset") == 5


ODD = {
    "description": ("\x1b[31mred\nline", ("\\x1b[31mred\\nline",)),
    "timestamp": (2**62, ("which is no date",)),
    "diagnostics": (
        {"seconds": "3 of 4", "age": "x", "bytes": "y", "started": "z"}, ("3 of 4", "x", "y", "z"),
    ),
}  # fmt: skip
"""Of a field of `_SUCCESS` an odd value, and what is shown: control characters in a text that no
reader refuses; any 64 bits for a time; diagnostics that are neither ages nor bytes."""


@pytest.mark.parametrize(
    ("field", "value", "shown"),
    [*((name, *odd) for name, odd in ODD.items()), ("timestamp", -(2**62), ODD["timestamp"][1])],
)
def test_what_a_reader_takes_is_shown_for_a_terminal(
    command: Command, tmp_path: Path, field: str, value: object, shown: tuple[str, ...]
) -> None:
    """It is escaped, or said to be none; no control character and no traceback is printed."""
    document = orjson.loads(SAMPLES["success"].read_bytes()) | {field: value}
    path = tmp_path / "_SUCCESS"
    path.write_bytes(orjson.dumps(document))
    ran = command("inspect", path)
    assert ran.code == 0
    assert all(text in ran.out for text in shown)
    assert "\x1b" not in ran.out


# What is wrong ------------------------------------------------------------------------------------

BROKEN: dict[str, tuple[str, bytes, str, str]] = {
    "empty": ("x.pending", b"", "", "has no data"),
    "an empty marker": ("_SUCCESS", b"", "", "has no data"),
    "not JSON": ("x.pendingset", b"PAR1", "", "is not JSON"),
    "not JSON, unnamed": ("x", b"\x00\xff", "", "is not JSON"),
    "a list": ("x", b"[]", "", "is not a JSON object"),
    "foreign": ("x", b'{"a": 1}', "", "none of the files"),
    "deep": ("x", b"[" * 3000, "", "is not JSON"),
    "too large": ("x.pending", b" " * (PENDING_BYTES_MAX + 1), "", "is larger than"),
    "a newer record": ("_job.json", b'{"version": 9}', "version", "this library knows 1"),
    "a newer plan": ("_plan-1.json", b'{"version": 9}', "version", "this library knows 2"),
    "a newer sign": ("_alive.json", b'{"version": 9}', "version", "this library knows 1"),
    "a number as text": (
        "_alive.json", b'{"version": 1, "job": "1", "role": "r", "host": "h", "pid": "1"}', "pid",
        "expected a whole number",
    ),
    "a manifest": (
        "x", (GOLDEN / "3.5.0/manifest-committer/task-manifest-1.json").read_bytes(), "type",
        "manifest committer",
    ),
}  # fmt: skip


@pytest.mark.parametrize("how", FORMATS)
@pytest.mark.parametrize("name", BROKEN)
def test_what_is_wrong_is_named(command: Command, tmp_path: Path, name: str, how: str) -> None:
    """--validate names object, field and reason on stdout, in every format; without it the same
    goes to stderr. Exit code 46 both times."""
    file, data, field, reason = BROKEN[name]
    path = tmp_path / file
    path.write_bytes(data)
    ran = command("inspect", path, "--validate", "--format", how)
    told = verdict(ran, how)
    assert (ran.code, told["valid"], ran.err) == (46, False, "")
    assert str(path) in ran.out.replace("\\\\", "\\")
    assert reason in told["reason"]
    assert field in told["field"]
    plain = command("inspect", path, "--format", how)
    assert (plain.code, plain.out) == (46, "")
    assert str(path) in plain.err
    assert reason in plain.err


def deletions(document: dict[str, Any]) -> list[bytes]:
    """A document without one of its fields, each in turn."""
    return [
        orjson.dumps({name: value for name, value in document.items() if name != gone})
        for gone in document
    ]


def replacements(document: dict[str, Any], chance: random.Random) -> list[bytes]:
    """A document with one value, at any depth, replaced by another."""
    values: list[Any] = [
        None, True, -1, 2**63, 1.5, "", "\x00", [], {}, [[]], {"a": [1]}, "2" * 2000,
    ]  # fmt: skip

    def places(value: Any) -> list[tuple[Any, Any]]:
        named = value.items() if isinstance(value, dict) else enumerate(value)
        found = []
        for name, child in list(named):
            found.append((value, name))
            if isinstance(child, dict | list):
                found += places(child)
        return found

    made = []
    for _ in range(MUTATIONS_OF_EACH):
        copy = orjson.loads(orjson.dumps(document))
        parent, name = chance.choice(places(copy))
        parent[name] = chance.choice(values)
        made.append(orjson.dumps(copy))
    return made


def bytes_changed(data: bytes, chance: random.Random) -> list[bytes]:
    """A file that was cut, or has one other byte."""
    made = [data[: chance.randrange(len(data))] for _ in range(MUTATIONS_OF_EACH // 3)]
    for _ in range(MUTATIONS_OF_EACH // 3):
        at = chance.randrange(len(data))
        made.append(data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :])
    return made


NAMED = {"pending": "x.pending", "pendingset": "x.pendingset", "success": "_SUCCESS"}
OURS = {"plan": "/_plan-", "record": "/_job.json", "alive": "/_alive.json", "ledger": "/_q.json"}
"""What is in their keys."""


def check_hostile(command: Command, path: Path, data: bytes) -> bool:
    """Inspect a file in one way and another; whether it is valid."""
    path.write_bytes(data)
    ran = command("inspect", path, "--validate", "--format", "json")
    told = ran.json()
    assert ran.code == (0 if told["valid"] else 46), (data, ran)
    assert ran.err == ""
    if not told["valid"]:
        assert told["reason"]
    shown = command("inspect", path)
    assert shown.code in (0, 46), (data, shown)
    assert "Traceback" not in shown.err
    return bool(told["valid"])


@pytest.mark.parametrize("kind", FILE_KINDS)
def test_a_mutation_is_never_a_traceback(
    command: Command, tmp_path: Path, ours: dict[str, bytes], chance: random.Random, kind: str
) -> None:
    """Fields that go, values of another type, cut files, flipped bytes: each is valid, or has a
    reason."""
    if kind in OURS:
        name, data = next((key, body) for key, body in ours.items() if OURS[kind] in key)
        name = name.rpartition("/")[2] if kind != "ledger" else "__magic_stream/_q.json"
    else:
        name, data = NAMED[kind], SAMPLES[kind].read_bytes()
    document = orjson.loads(data)
    mutants = deletions(document) + replacements(document, chance) + bytes_changed(data, chance)
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    valid = [check_hostile(command, file, mutant) for mutant in mutants]
    assert not all(valid)


def test_our_own_set_is_sealed(command: Command, tmp_path: Path, ours: dict[str, bytes]) -> None:
    """A commit that went missing from a set of ours is found out, well-formed as the rest is."""
    body = next(body for key, body in ours.items() if key.endswith(".pendingset"))
    path = tmp_path / "x.pendingset"
    path.write_bytes(body)
    assert command("inspect", path, "--validate").code == 0
    document = orjson.loads(body)
    document["commits"].pop()
    path.write_bytes(orjson.dumps(document))
    told = command("inspect", path, "--validate", "--format", "json").json()
    assert (told["valid"], told["field"]) == (False, "contentSha256")


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("s3://bucket/t/none.pending", 44), ("s3://bucket/t/", 2), ("s3://bucket", 2),
        ("gs://bucket/x", 2), ("none/here.pending", 44), (".", 2), ("a\0b", 1),
    ],
)  # fmt: skip
def test_what_cannot_be_read(
    command: Command, memory_s3: MemoryStore, file: str, code: int
) -> None:
    """Not there, a directory, no path: each has its exit code and one line."""
    for arguments in ([], ["--validate"]):
        ran = command("inspect", file, *arguments)
        assert (ran.code, ran.out, ran.err.count("\n")) == (code, "", 1)


def test_an_object_that_is_too_large_is_not_read(command: Command, memory_s3: MemoryStore) -> None:
    """What is no record by its size alone is said to be none."""
    memory_s3.put_object("t/_job.json", b" " * 100_000)
    ran = command("inspect", "s3://bucket/t/_job.json", "--validate", "--format", "json")
    assert (ran.code, ran.json()["as"]) == (46, "record")
    assert "is larger than 65536 bytes" in ran.json()["reason"]
