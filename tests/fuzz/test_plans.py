"""`Plan`: what one driver wants decided; what cannot be trusted is not executed, nor held."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import orjson
import pytest

from magic_committer.errors import FormatError, OptionError
from magic_committer.protocol import plan as plans
from magic_committer.protocol.plan import ROW_BYTES_MAX, Plan, PlannedSet
from magic_committer.protocol.record import ObjectRef
from tests.fuzz.growing import MiB, growth
from tests.plans import read_plan, write_plan

PLAN = Plan(
    job_id="j", uuid="0" * 32, nonce="1" * 32, files=1, data_bytes=2,
    sets=(PlannedSet("a.pendingset", '"a"', "1", "a"),),
    deletes=(ObjectRef("t/old.csv", '"b"'),),
    partitions=("dt=1/",), marker=ObjectRef("t/_SUCCESS", '"c"'),
)  # fmt: skip
ODD = ('"', "\\", '\\"', "],[", '"],["', "{", "\u202e", "日本", "\x7f", "\t", "", "a" * 1024)
"""Texts that a pattern may take for the end of theirs."""


def test_a_plan_is_read_as_it_was_written() -> None:
    """Every field comes back; also of lines with white space in them."""
    laid_out = PLAN.encode().replace(b",", b" ,\t")
    for data in (PLAN.encode(), laid_out, write_plan(read_plan(PLAN.encode()))):
        assert Plan.decode(data, "plan") == PLAN


def test_odd_texts_come_back() -> None:
    """Brackets, quotes and backslashes within texts end no row, whatever their order."""
    chance = random.Random(1)
    for _ in range(300):

        def text() -> str:
            return "".join(chance.choices(ODD, k=chance.randrange(4)))

        sets = [PlannedSet(text(), text(), text(), text()) for _ in range(chance.randrange(4))]
        deletes = [ObjectRef(text(), text(), chance.random()) for _ in range(chance.randrange(4))]
        made = replace(PLAN, sets=sets, deletes=deletes, partitions=(text(), text()))
        data = made.encode()
        assert read_plan(data)["sets"] == [[s.name, s.etag, s.task, s.attempt] for s in sets]
        assert Plan.decode(data, "plan") == made


def test_rows_are_a_collection() -> None:
    """The sets of a stored plan have a number, and are read in their order, each time anew."""
    sets = [PlannedSet(str(n), "e", "t", "a") for n in range(1_025)]
    read = Plan.decode(replace(PLAN, sets=sets).encode(), "plan").sets
    assert (len(read), list(read), list(read)) == (len(sets), sets, sets)
    assert sets[7] in read
    assert PlannedSet("7", "e", "t", "b") not in read
    assert read != sets[:-1]
    assert read != [*sets[:-1], sets[0]]


def without(field: str) -> Callable[[bytes], bytes]:
    """As if it had been cut, or written by something else."""

    def cut(data: bytes) -> bytes:
        head, _, rows = data.partition(b"\n")
        left = {name: value for name, value in orjson.loads(head).items() if name != field}
        return orjson.dumps(left) + b"\n" + rows

    return cut


BROKEN: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    **{
        f"without {field}": (without(field), field)
        for field in ("version", "sets", "deletes", "nonce", "uuid", "partitions", "marker")
    },
    # it is not executed in part
    "a newer version": (
        lambda d: d.replace(b'"version":3', b'"version":4'), "Upgrade magic-committer"
    ),
    "no object": (lambda d: b"[]", "is a list"),
    "nothing": (lambda d: b"", "has no data"),
    "empty lines": (lambda d: b"\n" * 4, "is not JSON"),
    "cut in its head": (lambda d: d[: d.index(b'"sets"')], "is not JSON"),
    "cut in a row": (lambda d: d[: d.index(b'"t/old')], "cut"),
    "cut at its end": (lambda d: d[:-1], "cut"),
    "a row less": (lambda d: d[: d.rindex(b'"dt')], "cut"),
    "something behind": (lambda d: d + b"{}", "follows"),
    "a row more": (lambda d: d + b'"dt=2/"\n', "follows"),
    "two of one name": (
        lambda d: d.replace(b'"files":1', b'"files":1,"files":2'), "files: appears twice"
    ),
    "an unknown field": (lambda d: d.replace(b"{", b'{"more":1,', 1), "more: is unknown"),
    "sets that are none": (lambda d: d.replace(b'["a.', b'{"a.'), "sets[0]"),
    "a row too short": (lambda d: d.replace(b'"1","a"]', b'"1"]'), "sets[0]"),
    "a row too long": (lambda d: d.replace(b'"1","a"]', b'"1","a","b"]'), "sets[0]"),
    "a number for a text": (lambda d: d.replace(b'"1","a"]', b'1,"a"]'), "sets[0]"),
    "rows for their number": (lambda d: d.replace(b'"sets":1', b'"sets":[]'), "sets: is a list"),
    "fewer than no rows": (lambda d: d.replace(b'"sets":1', b'"sets":-1'), "sets: is -1"),
    "a row of another kind": (
        lambda d: d.replace(b'"deletes":1,"partitions":1', b'"deletes":2,"partitions":0'),
        "deletes[1]",
    ),
    "no UTF-8": (lambda d: d.replace(b"t/old", b"t/\xff"), "deletes[0]: is no row"),
    "half a character": (lambda d: d.replace(b"t/old", b"t/\\ud800"), "deletes[0]: is no row"),
    "no escape": (lambda d: d.replace(b"t/old", b"t/\\x"), "deletes[0]: is no row"),
    "a control character": (lambda d: d.replace(b"t/old", b"t/\x01"), "deletes[0]"),
    "a line in two": (lambda d: d.replace(b"t/old", b"t/\n"), "follows"),
    "a version that is true": (lambda d: d.replace(b'"version":3', b'"version":true'), "version"),
    "fewer than no files": (lambda d: d.replace(b'"files":1', b'"files":-1'), "files: is -1"),
    "more bytes than there are": (
        lambda d: d.replace(b'"bytes":2', b'"bytes":9223372036854775808'), "bytes: is 922337203685"
    ),
    "files beyond 64 bits": (
        lambda d: d.replace(b'"files":1', b'"files":1' + b"0" * 400), "files: is a number"
    ),
    "a long row": (
        lambda d: d.replace(b"t/old", b"t/" + b"x" * ROW_BYTES_MAX), f"at most {ROW_BYTES_MAX}"
    ),
    "a long first line, as versions before had it": (
        lambda d: d.replace(b'"j"', b'"' + b"j" * ROW_BYTES_MAX + b'"'), "first line is too long"
    ),
}  # fmt: skip


@pytest.mark.parametrize("how", BROKEN)
def test_what_is_no_plan_is_named(how: str) -> None:
    """From whatever bytes only a FormatError comes, which names the field or the row."""
    spoil, told = BROKEN[how]
    with pytest.raises(FormatError) as caught:
        Plan.decode(spoil(PLAN.encode()), "plan")
    assert told in str(caught.value)


def test_a_damaged_plan_is_refused_or_says_what_an_independent_reader_reads() -> None:
    """8,000 seeded mutations: a refusal, or exactly what the standard library's reader sees."""
    chance = random.Random(2)
    original = replace(PLAN, sets=[*PLAN.sets] * 3, deletes=[*PLAN.deletes] * 3).encode()
    accepted = 0
    for seed in range(8_000):
        data = bytearray(original)
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(data))
            piece = chance.choice([b"", b'"', b"\\", b"[", b"]", b",", b"{", b"}", b"1", b"\xff"])
            data[at : at + chance.randrange(3)] = piece
        try:
            read = Plan.decode(bytes(data), "plan")
        except FormatError:
            continue
        accepted += 1
        document = read_plan(bytes(data))
        rows = [[d.key, d.etag, d.modified] for d in read.deletes]
        assert document["deletes"] == rows, seed
        assert [[s.name, s.etag, s.task, s.attempt] for s in read.sets] == document["sets"], seed
        assert list(read.partitions) == document["partitions"], seed
    assert accepted > 100


# Limits -------------------------------------------------------------------------------------------

HOSTILE: dict[str, tuple[bytes, bytes]] = {
    "empty lists": (b'"sets":0', b"[]\n"),
    "empty objects": (b'"sets":0', b"{}\n"),
    "a row of objects": (b'"deletes":0', b'{"a":1},'),
    "nested lists": (b'"deletes":0', b"["),
    "short sets": (b'"sets":0', b'["","","",""]\n'),
    "short deletes": (b'"deletes":0', b'["","",0]\n'),
    "short partitions": (b'"partitions":0', b'""\n'),
    "white space": (b'"partitions":0', b" "),
    "empty lines": (b'"deletes":0', b"\n"),
    "backslashes": (b'"deletes":0', b'"\\'),
}
EMPTY = replace(PLAN, sets=(), deletes=(), partitions=())


def hostile(kind: str, size: int) -> bytes:
    """A plan of that many bytes, most of them what is given; its head tells how many lines."""
    place, filling = HOSTILE[kind]
    rows = filling * (size // len(filling))
    rows += b"" if rows.endswith(b"\n") else b"\n"
    number = min(rows.count(b"\n"), plans._KINDS[place[1:-3].decode()].rows_max)
    return EMPTY.encode().replace(place, place[:-1] + b"%d" % number) + rows


IMPORTS = "from magic_committer.protocol.plan import FormatError, Plan"
READ = """
try:
    plan = Plan.decode(data, "plan")
    met = sum(1 for one in plan.deletes if one.modified)
except FormatError as error:
    met = error
"""


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_plan_takes_no_memory_beside_its_own_bytes(kind: str) -> None:
    """34 MB of whatever: refused, or read, with 16 MiB beside it (it was 700 MB and more)."""
    grown, met = growth(hostile(kind, 34_000_000), IMPORTS, READ)
    assert grown < 16 * MiB, f"{grown / MiB:.0f} MiB: {met}"
    assert met != "0"


def test_a_plan_of_a_million_deletes_is_read_without_a_million_objects() -> None:
    """What a real job needs: a million files replaced take 4 bytes each beside the plan's own."""
    row = b'["warehouse/dt=2026-01-01/part-00000-c000.parquet","\\"0123\\"",1700000000.5]'
    data = EMPTY.encode().replace(b'"deletes":0', b'"deletes":1000000')
    data += (row + b"\n") * 1_000_000
    grown, met = growth(data, IMPORTS, READ)
    assert met == "1000000"
    assert grown < 24 * MiB, f"{grown / MiB:.0f} MiB"


@pytest.mark.parametrize(
    ("field", "rows"),
    [
        ("sets", [PlannedSet("a", "b", "c", "d")] * 3),
        ("deletes", [ObjectRef("a", "b")] * 3),
        ("partitions", ("a/", "b/", "c/")),
    ],
)
def test_more_rows_than_the_limit_are_neither_written_nor_read(
    monkeypatch: pytest.MonkeyPatch, field: str, rows: list[object]
) -> None:
    """One row more than the limit is refused by the writer, before the decision, and by the reader;
    so many are not."""
    large = replace(EMPTY, **{field: rows})  # type: ignore[arg-type]
    data, kind = large.encode(), plans._KINDS[field]
    monkeypatch.setitem(plans._KINDS, field, kind._replace(rows_max=3))
    assert Plan.decode(large.encode(), "plan") == large
    monkeypatch.setitem(plans._KINDS, field, kind._replace(rows_max=2))
    with pytest.raises(OptionError, match=r"at most 2.*Nothing was decided"):
        large.encode()
    with pytest.raises(FormatError, match="more than 2 rows"):
        Plan.decode(data, "plan")


def test_the_writer_refuses_what_no_reader_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan of too many bytes, or with a row that is too long, is refused before the decision."""
    with pytest.raises(OptionError, match="a row has"):
        replace(PLAN, deletes=(ObjectRef("x" * ROW_BYTES_MAX, "e"),)).encode()
    monkeypatch.setattr(plans, "PLAN_BYTES_MAX", 100)
    with pytest.raises(OptionError, match="at most 100 are read"):
        PLAN.encode()
    with pytest.raises(FormatError, match="more than 100"):
        Plan.decode(b" " * 101, "plan")
