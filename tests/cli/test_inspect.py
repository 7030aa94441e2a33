"""``inspect``: every file that Hadoop or we wrote is printed; of a broken one field and reason are
named, in every format, and never a traceback."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any, get_args

import orjson
import pytest

import magic_committer as mc
from magic_committer.cli import output
from magic_committer.cli.app import FORMATS
from magic_committer.cli.inspecting import FileKind
from magic_committer.commit.fence import give_sign_of_life
from magic_committer.hadoop.documents import PENDING_BYTES_MAX
from magic_committer.protocol.plan import Plan, PlannedSet
from magic_committer.protocol.record import ObjectRef
from magic_committer.stores.memory import MemoryStore, Request
from tests.cli.conftest import Command
from tests.concrete import uploads_of
from tests.promises.hands import committed_task

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


NAMES = {"pending": "x.pending", "pendingset": "x.pendingset", "success": "_SUCCESS"}


def named(tmp_path: Path, path: Path) -> tuple[str, Path]:
    """The kind of a golden file, and a copy that has a name of that kind."""
    kind = path.name.partition("-")[0].removesuffix(".json")
    kind = "success" if kind in ("_SUCCESS", "summary") else kind
    copy = tmp_path / NAMES[kind]
    copy.write_bytes(path.read_bytes())
    return kind, copy


@pytest.fixture
def ours(memory_s3: MemoryStore) -> dict[str, bytes]:
    """One of each of our own files, as a job leaves them on the store."""
    seen: dict[str, bytes] = {}

    def look(request: Request, reply: object) -> None:
        key = request.key
        control = "__magic_" in key and "/probe-" not in key and not key.endswith(".csv")
        if request.verb == "put" and (control or key.endswith("_SUCCESS")):
            seen[key] = memory_s3.body(key)

    memory_s3.after = look
    memory_s3.put_object("t/old.csv", b"old")
    job = mc.start("s3://bucket/t", mode="replace", track="s3")
    result = committed_task(job, "7", {"x.csv": b"data", "y.csv": b"data"})
    assert give_sign_of_life(uploads_of(job._committer()).runtime, job._started)
    job.commit([result], batch=mc.StreamBatch("q", 7))
    memory_s3.after = None
    return seen


@pytest.mark.parametrize("path", FILES, ids=lambda path: "/".join(path.parts[-3:]))
def test_every_golden_file_is_printed(command: Command, tmp_path: Path, path: Path) -> None:
    """For people and as JSON of a versioned schema."""
    kind, copy = named(tmp_path, path)
    assert command("inspect", copy).code == 0
    ran = command("inspect", copy, "--format", "json")
    assert (ran.code, ran.json()["schema"]) == (0, 1)
    assert ran.json()["type"] == ("pendings" if kind == "pendingset" else kind)


def test_what_hadoop_wrote_is_told(command: Command, tmp_path: Path) -> None:
    """A pendingset file by file and their sum; of `_SUCCESS` committer, names and counters."""
    pendingset, success = (named(tmp_path, SAMPLES[kind])[1] for kind in ("pendingset", "success"))
    told = command("inspect", pendingset, "--format", "json").json()
    commits = orjson.loads(pendingset.read_bytes())["commits"]
    assert [(row["key"], row["upload_id"]) for row in told["rows"]] == [
        (one["destinationKey"], one["uploadId"]) for one in commits
    ]
    assert told["summary"]["bytes"] == sum(one["length"] for one in commits)
    assert told["rows"][0]["created"] == commits[0]["created"] / 1000
    ran = command("inspect", success)
    assert re.search(r"^committer +magic$", ran.out, re.MULTILINE)
    assert "metrics: committer_bytes_committed" in ran.out
    assert len(re.findall(r"^filenames +/g/", ran.out, re.MULTILINE)) == 3


def test_each_of_our_own_files_is_printed_from_the_store(
    command: Command, memory_s3: MemoryStore, ours: dict[str, bytes]
) -> None:
    """Each file of a job, by URL; what is too large for one is not read."""
    kinds = set()
    for key, body in ours.items():
        memory_s3.put_object(key, body)
        url = f"s3://bucket/{key}"
        kinds.add(command("inspect", url, "--format", "json").json()["type"])
        for how in FORMATS:
            ran = command("inspect", url, "--format", how)
            assert (ran.code, bool(ran.out)) == (0, True)
    rows = {"pendingset": "pendings", "plan": "sets"}
    assert kinds == {rows.get(kind, kind) for kind in get_args(FileKind)}
    memory_s3.put_object("t/_job.json", b" " * 100_000)
    ran = command("inspect", "s3://bucket/t/_job.json")
    assert (ran.code, "is larger than 65536 bytes" in ran.err) == (46, True)


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


@pytest.mark.parametrize(
    ("field", "value", "shown"),
    [
        ("description", "\x1b[31mred\nline", ["\\x1b[31mred\\nline"]),
        ("timestamp", 2**62, ["which is no date"]),
        ("timestamp", -(2**62), ["which is no date"]),
        ("diagnostics", {"seconds": "3 of 4", "age": "x", "bytes": "y", "started": "z"},
         ["3 of 4", "x", "y", "z"]),
    ],
)  # fmt: skip
def test_what_a_reader_takes_is_shown_for_a_terminal(
    command: Command, tmp_path: Path, field: str, value: object, shown: list[str]
) -> None:
    """It is escaped, or said to be none; no control character and no traceback is printed."""
    document = orjson.loads(SAMPLES["success"].read_bytes()) | {field: value}
    path = tmp_path / "_SUCCESS"
    path.write_bytes(orjson.dumps(document))
    ran = command("inspect", path)
    assert ran.code == 0
    assert all(text in ran.out for text in shown)
    assert "\x1b" not in ran.out


BROKEN: dict[str, tuple[str, bytes, str, str]] = {
    "empty": ("x.pending", b"", "", "has no data"),
    "an empty marker": ("_SUCCESS", b"", "", "has no data"),
    "not JSON": ("x.pendingset", b"PAR1", "", "is not JSON"),
    "a list": ("x.pending", b"[]", "", "is a list"),
    "foreign": ("x.pending", b'{"a": 1}', "", "uri"),
    "deep": ("x.pending", b"[" * 3000, "", "is not JSON"),
    "too large": ("x.pending", b" " * (PENDING_BYTES_MAX + 1), "", "is larger than"),
    "a newer record": ("_job.json", b'{"version": 9}', "version", "this library knows 1"),
    "a newer plan": ("_plan-1.json", b'{"version": 9}', "version", "this library knows 3"),
    "a newer sign": ("_alive.json", b'{"version": 9}', "version", "this library knows 1"),
    "a number as text": (
        "_alive.json", b'{"version": 1, "job": "1", "role": "r", "host": "h", "pid": "1"}', "pid",
        "expected a whole number",
    ),
}  # fmt: skip


@pytest.mark.parametrize("how", FORMATS)
@pytest.mark.parametrize("name", BROKEN)
def test_what_is_wrong_is_named(command: Command, tmp_path: Path, name: str, how: str) -> None:
    """With the file, on stderr."""
    file, data, field, reason = BROKEN[name]
    path = tmp_path / file
    path.write_bytes(data)
    ran = command("inspect", path, "--format", how)
    assert (ran.code, ran.out) == (46, "")
    assert all(told in ran.err for told in (str(path), field, reason))


OURS = {"plan": "/_plan-", "record": "/_job.json", "alive": "/_alive.json", "ledger": "/_q.json"}
"""What is in their keys."""


VALUES: list[Any] = [
    None, True, -1, 2**63, 1.5, "", "\x00", [], {}, [[]], {"a": [1]}, "2" * 2000,
]  # fmt: skip
MUTANTS = 110


def mutant(data: bytes, chance: random.Random) -> bytes:
    """A file that was cut, has another byte, has lost a field, or has another value at any
    depth."""
    at, how = chance.randrange(len(data)), chance.choice(["cut", "byte", "lost", "value", "value"])
    if how == "cut":
        return data[:at]
    if how == "byte":
        return data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]
    head, *rows = data.splitlines(keepends=True)  # a plan is lines
    lines = [head] if rows and rows[-1].endswith(b"\n") else [data]
    document = orjson.loads(lines[0])
    holders = [document]
    for holder in holders:  # which grows
        inside = holder.values() if isinstance(holder, dict) else holder
        holders += [value for value in inside if value and isinstance(value, dict | list)]
    holder = document if how == "lost" else chance.choice(holders)
    name = chance.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    if how == "lost":
        del holder[name]
    else:
        holder[name] = chance.choice(VALUES)
    return orjson.dumps(document) + (b"" if lines == [data] else b"\n" + b"".join(rows))


@pytest.mark.parametrize("kind", get_args(FileKind))
def test_a_mutation_is_never_a_traceback(
    command: Command, tmp_path: Path, ours: dict[str, bytes], chance: random.Random, kind: str
) -> None:
    """Each is printed, or has a reason."""
    if kind in OURS:
        key, data = next((key, body) for key, body in ours.items() if OURS[kind] in key)
        path = tmp_path / "__magic_stream" / key.rpartition("/")[2]
    else:
        path, data = tmp_path / "x" / NAMES[kind], SAMPLES[kind].read_bytes()
    path.parent.mkdir()
    valid = []
    for _ in range(MUTANTS):
        changed = mutant(data, chance)
        path.write_bytes(changed)
        ran, shown = command("inspect", path, "--json"), command("inspect", path)
        valid.append(shown.code == 0)
        assert ran.code == shown.code in (0, 46), (changed, shown)
        assert bool(shown.out) is bool(ran.out) is valid[-1], changed
        assert bool(shown.err) is not valid[-1], changed
        assert "Traceback" not in shown.err
    assert not all(valid)


def test_our_own_set_is_sealed(command: Command, tmp_path: Path, ours: dict[str, bytes]) -> None:
    """A commit that went missing from a set of ours is found out, well-formed as the rest is."""
    body = next(body for key, body in ours.items() if key.endswith(".pendingset"))
    path = tmp_path / "x.pendingset"
    path.write_bytes(body)
    assert command("inspect", path).code == 0
    document = orjson.loads(body)
    document["commits"].pop()
    path.write_bytes(orjson.dumps(document))
    ran = command("inspect", path)
    assert (ran.code, "contentSha256" in ran.err) == (46, True)


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("s3://bucket/t/none.pending", 44), ("s3://bucket/t/", 2), ("s3://bucket", 2),
        ("gs://bucket/x", 2), ("none/here.pending", 44), (".", 2), ("x", 2), ("a\0b.pending", 1),
    ],
)  # fmt: skip
def test_what_cannot_be_read(
    command: Command, memory_s3: MemoryStore, file: str, code: int
) -> None:
    """Not there, a directory, no path, no name of ours: each has its exit code and one line."""
    ran = command("inspect", file)
    assert (ran.code, ran.out, ran.err.count("\n")) == (code, "", 1)
