"""Each kind of run of `benchmarks.own_writers` is whole, and what is wrong is told; with those of
the libraries that are installed here. Nothing is timed."""

from __future__ import annotations

import shutil
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from benchmarks import own_writers, server
from benchmarks.own_cases import PAIRS, Pair, Source
from benchmarks.own_writers import Found, Left, Program, Turn
from benchmarks.plan import Failed
from benchmarks.server import Server

MiB = 1024**2


@pytest.fixture(scope="module")
def on() -> Iterator[Server]:
    """The fast server."""
    if shutil.which("go") is None:
        pytest.skip("there is no `go` on the PATH to build the fast server")
    with server.fast() as one:
        yield one


def pair(name: str) -> Pair:
    """One of the program's."""
    (found,) = [one for one in PAIRS if one.name == name]
    if found.missing:
        pytest.skip(f"not installed: {found.missing}")
    return found


def test_both_sides_write_the_same_by_turns(on: Server) -> None:
    """One turn of each side in each round, begun by the other one."""
    found = Program(on, 2).timed(pair("polars_partitions"))
    assert [turn.side for turn in found] == ["ours", "own", "own", "ours"]


def test_a_failure_leaves_what_the_server_says(on: Server) -> None:
    """An exception half-way: pyarrow's own writer publishes a cut file, ours nothing."""
    program, arrow = Program(on, 1), pair("arrow")
    whole = program.failed(arrow, "own", "whole", []).visible
    own = program.failed(arrow, "own", "raises", whole)
    assert 0 < sum(own.visible) < sum(whole)
    assert own.told.startswith("**a cut file")
    ours = program.failed(arrow, "ours", "raises", whole)
    assert (ours.visible, ours.open_uploads, ours.cleaned) == ([], 0, "0 objects, 0 uploads")


def test_a_killed_process_leaves_what_cleanup_removes(on: Server) -> None:
    """Nothing is visible, an upload is open; after `cleanup` there is nothing at all."""
    left = Program(on, 1).failed(pair("arrow"), "ours", "killed", [])
    assert (left.visible, left.open_uploads) == ([], 1)
    assert left.cleaned == "0 objects, 0 uploads"


def put(on: Server, *sizes: int) -> Callable[[Source, str], None]:
    """A writer of objects of these sizes; of -1: an upload that stays open."""

    def write(source: Source, to: str) -> None:
        for number, size in enumerate(sizes):
            key = f"{on.url}/{to.removeprefix('s3://')}/{number}"
            asked = (
                urllib.request.Request(key, b"x" * size, method="PUT")
                if size >= 0
                else urllib.request.Request(f"{key}?uploads", b"", method="POST")
            )
            urllib.request.urlopen(asked, timeout=10).close()

    return write


@pytest.mark.parametrize(
    ("own", "ours", "told"),
    [
        ([1000], [1000], ""),
        ([1000], [1000, 1000], "own wrote"),
        ([1000], [900], "own wrote"),
        ([1000], [1000, -1], "1 uploads are open"),
        ([1000, -1], [1000], "1 uploads are open"),
    ],
)
def test_a_side_that_writes_something_else_is_no_figure(
    on: Server, own: list[int], ours: list[int], told: str
) -> None:
    """Another number of files, fewer bytes, an upload that stays open: each is an error."""
    made = Pair("test", "test", (), put(on, *own), put(on, *ours))
    if not told:
        assert len(own_writers.turns(made, 1, on.url)) == 2
        return
    with pytest.raises(Failed, match=told):
        own_writers.turns(made, 1, on.url)


def test_a_failure_that_was_not_asked_for_is_an_error(on: Server) -> None:
    """A process that ends well where it was to fail, or the other way round, is no row."""
    with pytest.raises(Failed, match="exit code 1"):
        Program(on, 1).failed(Pair("x", "x", (), put(on), put(on)), "own", "raises", [])


def test_the_tables_say_what_was_found() -> None:
    """The median of the ratios of the rounds, bold above the goal; a cut file, files that are
    missing, and what is open; and what ours leaves beyond nothing."""
    arrow, many = pair("arrow_table"), pair("polars_partitions")
    turns = [Turn("own", 1.0, 0.5), Turn("ours", 1.2, 0.6)] * 3
    left = [
        Left(many.name, "own", "raises", [10, 100], [100] * 4, 2),
        Left(many.name, "ours", "raises", [], [100] * 4, 0, cleaned="0 objects, 0 uploads"),
    ]
    text = own_writers.block(Found({arrow.name: turns}, left, {"zarr": "zarr missing"}), 60)
    assert "| 2 | **1.20** (1.20–1.20) |" in text
    assert "| **2 of 4 files, 1 of them cut**, 2 uploads open |  |" in text
    assert "nothing at all after `cleanup`." in text
    left[1] = replace(left[1], cleaned="1 objects, 0 uploads")
    again = own_writers.of_ours(Found({}, left))
    assert again.endswith(": nothing visible; after `cleanup` 1 objects, 0 uploads")
    assert "Left out: zarr: zarr missing" in text


def test_a_library_that_is_missing_is_named(on: Server) -> None:
    """With how to install it; the others go on."""
    nobody = Pair("Nobody", "nothing", ("no-such-package",), put(on), put(on))
    found = own_writers.measure(Program(on, 1), [nobody])
    assert found.left_out == {"Nobody": "no-such-package missing: pip install --group writers"}
    assert not found.problems


def test_a_pair_that_fails_is_a_problem(on: Server) -> None:
    """The exit code of the program comes from it."""
    broken = Pair("x", "x", (), put(on), put(on))  # no child knows its name
    assert own_writers.measure(Program(on, 1), [broken]).problems


def test_the_page_has_its_marks() -> None:
    """The tables go between them; a page without them is refused."""
    page = own_writers.PAGE.read_text(encoding="utf-8")
    assert "\n\nTHE TABLES\n\n" in own_writers.placed(page, "THE TABLES")
    with pytest.raises(ValueError, match="once each"):
        own_writers.placed("nothing", "THE TABLES")
