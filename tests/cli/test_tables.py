"""Tables and documents at the widths of terminals, and piped: a key stays in one piece, nothing
trails, and memory does not grow with the rows."""

from __future__ import annotations

import io
import re
import tracemalloc
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from rich.cells import cell_len

import magic_committer as mc
from magic_committer.cli.output import Column, Output
from magic_committer.cli.shell import shown_progress
from magic_committer.hadoop.paths import unique_name
from magic_committer.runtime.components import Progress
from magic_committer.stores.memory import MemoryStore
from tests.cli.conftest import Command
from tests.promises.hands import committed_task, control, dies_at

WIDTHS = (80, 120, 200)
KEYS = (
    "t/a.csv", f"t/year=2013/month=04/part-00000-{'0' * 32}-mcj{'5' * 32}.snappy.parquet",
    f"t/{'long/' * 60}x.csv", "t/with blanks, in its name .csv", "t/表/データ.csv",
)  # fmt: skip
COLUMNS = (
    Column("class"), Column("job"), Column("parts", right=True), Column("would", reason=True),
    Column("key"),
)  # fmt: skip


def row(key: str, number: int = 0) -> dict[str, Any]:
    would = ("abort it", "leave it: its job is running", "")[number % 3]
    job = f"nightly-{number:04}"
    return {"class": "orphan", "job": job, "parts": 12, "would": would, "key": key}


ROWS = [row(key, number) for number, key in enumerate(KEYS)]


class Terminal(io.StringIO):
    """What is written to it is seen by a person."""

    def isatty(self) -> bool:
        return True


def printed(rows: list[dict[str, Any]], width: int | None, *columns: Column) -> list[str]:
    """The lines of a table, on a terminal of that width or in a pipe, without colours."""
    stream = io.StringIO() if width is None else Terminal()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        Output("table", stream).rows("row", columns or COLUMNS, rows, fields=())
    return re.sub(r"\x1b\[\d*m", "", stream.getvalue()).splitlines()


@pytest.mark.parametrize("width", [*WIDTHS, None])
def test_a_key_is_in_one_piece(width: int | None) -> None:
    """However narrow the terminal is; a line is wider only for a key that is alone on it."""
    lines = printed(ROWS, width)
    for key in KEYS:
        assert sum(line.endswith(f"  {key}") for line in lines) == 1, key
    for line in lines:
        alone = line.startswith("  ") and line.strip() in KEYS
        assert line == line.rstrip()
        assert cell_len(line) <= (width or 10**9) or alone, line
    legend = [line for line in lines if line.startswith("[")]
    assert legend == ["[1] abort it", "[2] leave it: its job is running"]
    assert sum("[1]" in line for line in lines) == 3
    assert not any("abort it" in line for line in lines if not line.startswith("["))


def test_a_key_that_fits_beside_nothing_gets_its_own_line() -> None:
    """Below what is told of it; a column in which no row has anything takes no place."""
    key = "k" * 70
    assert printed([row(key)], 80) == [
        "class   job           parts  would", "  key", "orphan  nightly-0000     12  [1]",
        f"  {key}", "[1] abort it",
    ]  # fmt: skip
    assert printed([{"key": 2 * key}], 80)[-1].strip() == 2 * key
    lines = printed([{**row("t/a.csv"), "job": ""}], None)
    assert lines[0].split() == ["class", "parts", "would", "key"]


@pytest.mark.parametrize(("rows", "times"), [(5, 1), (60, 2)])
def test_what_stands_above_a_long_table_stands_below_it_too(rows: int, times: int) -> None:
    """It would be out of sight."""
    stream = io.StringIO()
    many = [row(f"t/{number}.csv") for number in range(rows)]
    Output("table", stream).rows("row", COLUMNS, many, fields=(), closing=lambda: "So many")
    assert stream.getvalue().count("So many") == times


@pytest.mark.parametrize("width", [*WIDTHS, None])
def test_prose_is_wrapped_between_words(width: int | None) -> None:
    """Each line below the one above; in a pipe it is one line, for grep."""
    words = " ".join(f"word{number}" for number in range(60))
    columns = (Column("name"), Column("told", prose=True))
    lines = printed([{"name": "append", "told": words}], width, *columns)
    assert max(map(len, lines)) <= (width or 10**9)
    assert (len(lines) == 2) == (width is None)
    assert " ".join(line[8:] for line in lines[1:]) == words
    assert all(line.startswith(" " * 8) for line in lines[2:])


def test_colours_are_rich_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal shows the titles bold; NO_COLOR and a pipe are kept to."""

    def shown(stream: io.StringIO) -> str:
        Output("table", stream).rows("row", COLUMNS, ROWS[:1], fields=())
        return stream.getvalue()

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[1m" in shown(Terminal())
    assert "\x1b" not in shown(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[3\d", shown(Terminal()))


@pytest.mark.parametrize("how", ["table", "json", "jsonl", "csv"])
def test_memory_does_not_grow_with_the_rows(how: Any) -> None:
    """A hundred thousand rows are printed as they come; a table has the first 1,000 of them."""

    class Nowhere(io.StringIO):
        def write(self, text: str) -> int:
            return len(text)

    def rows() -> Iterator[dict[str, Any]]:
        yield from (row(f"t/{number}.csv") for number in range(100_000))

    tracemalloc.start()
    Output(how, Nowhere()).rows("row", COLUMNS, rows(), fields=tuple(ROWS[0]))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000_000


@pytest.mark.parametrize("how", ["table", "json", "jsonl", "csv"])
def test_what_was_done_before_a_failure_is_told(how: Any) -> None:
    """The rows before it are printed, in a document that is whole; then the error goes on."""

    def rows() -> Iterator[dict[str, Any]]:
        yield row("t/a.csv")
        raise ZeroDivisionError

    out = io.StringIO()
    printer, fields = Output(how, out), tuple(ROWS[0])
    with pytest.raises(ZeroDivisionError):
        printer.rows("row", COLUMNS, rows(), fields=fields, closing=lambda: "all of them")
    assert "t/a.csv" in out.getvalue()
    assert "all of them" not in out.getvalue()
    assert how != "json" or len(orjson.loads(out.getvalue())["rows"]) == 1


@pytest.mark.parametrize("changes", [True, False])
@pytest.mark.parametrize("how", ["json", "jsonl", "csv"])
def test_work_goes_on_though_nobody_reads(how: Any, changes: bool) -> None:
    """A full disk under the report stops no clean-up; a list ends."""

    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    rows = iter(map(row, KEYS[:3]))
    printer = Output(how, Full(), changes)
    printer.rows("row", COLUMNS, rows, fields=tuple(ROWS[0]))
    assert (list(rows) == [], len(printer.lost)) == (changes, 1)


def test_a_result_never_runs_into_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is printed while bars are shown begins on a line that they have left."""
    shown = Terminal()
    monkeypatch.setattr("sys.stderr", shown)
    with shown_progress(False) as progress:
        progress(Progress("check", 1, 3, "files"))
        Output("table", shown).text("job  nightly")
        progress(Progress("check", 3, 3, "files"))
        Output("table", shown).text("outcome  committed")
    for told in ("job  nightly", "outcome  committed"):
        before = shown.getvalue().partition(told)[0]
        assert before.endswith("\x1b[2K"), before[-40:]


def keys_of(store: MemoryStore, length: int) -> dict[str, str]:
    """Keys of so many characters: of a file of a running job, of an upload without a job, and of a
    file that a decided job has lost."""
    keys = {name: f"t/{name}".ljust(length, "k") for name in ("running", "lost")}
    for name, key in keys.items():
        job = mc.start("s3://bucket/t", job_id=name, track="s3", accept="listing")
        committed_task(job, "1", {key.removeprefix("t/"): b"x"})
    dies_at(store, "complete_upload", job.commit)
    store.drop_upload(store.open_uploads(keys["lost"])[0].upload_id)
    orphan = f"t/{unique_name('k' * (length - 38), '0' * 32)}"
    store.start_upload(orphan)
    return {**keys, "orphan": orphan}


@pytest.mark.parametrize("length", [40, 78, 79, 80])
@pytest.mark.parametrize(
    ("words", "key"),
    [
        ("uploads list s3://bucket/t", "running"),
        ("uploads abort s3://bucket/t --older-than 0 --dry-run", "orphan"),
        ("uploads abort s3://bucket/t --older-than 0 --yes", "orphan"),
        ("cleanup s3://bucket/t --leftover-after 0 --dry-run", "orphan"),
        ("job show s3://bucket/t lost", "lost"),
        ("job recover s3://bucket/t lost --dry-run --dead-after 0", "lost"),
        ("inspect s3://bucket/{set}", "running"),
    ],
)
def test_no_command_cuts_a_key_at_80_columns(
    command: Command, memory_s3: MemoryStore, monkeypatch: pytest.MonkeyPatch, words: str, key: str,
    length: int,
) -> None:  # fmt: skip
    """A terminal breaks a line after 80 places: a key of as many is on one line of it."""
    keys = keys_of(memory_s3, length)
    monkeypatch.setattr(Output, "_width", lambda _: 80)
    (stored,) = [k for k in control(memory_s3) if "job-running/00" in k]
    told = command(*words.format(set=stored).split()).out
    seen = [line[n : n + 80] for line in told.splitlines() for n in range(0, len(line), 80)]
    assert any(keys[key] in one for one in seen), told


@pytest.mark.parametrize(
    "words",
    ["job list", "job list --recursive", "uploads list", "uploads abort --dry-run", "doctor",
     "cleanup"],
)  # fmt: skip
def test_nothing_trails_in_a_pipe(command: Command, memory_s3: MemoryStore, words: str) -> None:
    """No line of a command's table ends in a blank, whatever its last cells hold."""
    job = mc.start("s3://bucket/t", job_id="mine")
    with job.task("1") as task, task.open("a.csv", "wb") as file:
        file.write(b"abc")
    memory_s3.start_upload("t/other.csv")
    told = command(*words.split(), "s3://bucket/t")
    assert told.out
    assert [line for line in told.out.splitlines() if line != line.rstrip()] == []
