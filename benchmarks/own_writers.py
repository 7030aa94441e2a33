"""Each library with its own writer to S3 beside the same library with ours: time, and failures.

    python -m benchmarks.own_writers [--rounds 5] [--only WORD] [--no-failures] [--write-docs]

wants the dependency group ``writers`` in an environment of its own, and Go:

    python -m venv .venv-writers
    .venv-writers/bin/pip install -e '.[fast,fsspec]' --group writers
    .venv-writers/bin/python -m benchmarks.own_writers

What is not installed is left out and named. About five minutes on two cores.

**Time.** A process for each library writes 64 MiB, or 32 partitions of 1 MiB, by turns with its own
writer and with ours, each round begun by the other one; before them each runs once, so that imports
and clients are there. The ratio of a round is ours to its own; the table has the medians. After
each turn the server is asked: both have made as many objects with as many bytes, and nothing is
open.

**Failures.** A process for each library, writer and failure: half-way the source raises, or the
process kills itself (SIGKILL). Then the server is asked what is there: objects that a reader sees,
held against those of a whole run, and uploads that are open. After ours `cleanup` runs, as an
operator would call it, and the server is asked again.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import server
from benchmarks.child import ask, cpu_seconds
from benchmarks.own_cases import PAIRS, Broken, Pair
from benchmarks.plan import Failed
from benchmarks.report import Table, markdown
from benchmarks.server import BUCKET, Server
from benchmarks.writers import MiB, environment

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "comparison.md"
INSTALL = "pip install --group writers"
RUN_SECONDS_MAX = 300.0
SIDES = ("own", "ours")
RATIO_MAX = 1.1
"""What ours may take of its own."""
FAILURES = {"raises": "the source raises", "killed": "`kill -9`"}
SAME = 0.99
"""A file of less than this part of the whole one is cut."""


# In the process that writes -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of one side: seconds, and CPU seconds of all threads."""

    side: str
    seconds: float
    cpu: float


def shape(facts: Mapping[str, Any]) -> list[int]:
    """Sizes of the objects that hold data: no directory's mark, none of the committer's own."""
    return sorted(
        one["size"]
        for key, one in facts["objects"].items()
        if one["size"] and not key.rpartition("/")[2].startswith("_") and "/__magic" not in key
    )


def controlled(url: str) -> dict[str, str]:
    """What `child.ask` wants to know."""
    return {"control": url}


def facts_of(url: str) -> dict[str, Any]:
    """What the server has seen since its reset."""
    found: dict[str, Any] = ask(controlled(url), "facts")
    return found


def turns(pair: Pair, rounds: int, url: str) -> list[Turn]:
    """Time both sides.

    Raises:
        Failed: they did not write the same.
    """
    source, done = pair.source(), []
    for number in range(-1, rounds):
        written = {}
        for side in SIDES if number % 2 else SIDES[::-1]:
            ask(controlled(url), "reset?verify=0")
            to = f"s3://{BUCKET}/{side}-{number + 1}"
            began, used = time.perf_counter(), cpu_seconds()
            getattr(pair, side)(source, to)
            turn = Turn(side, time.perf_counter() - began, cpu_seconds() - used)
            done += [turn] if number >= 0 else []
            facts = facts_of(url)
            written[side] = shape(facts)
            if facts["open_uploads"] or facts["unknown"]:
                raise Failed(f"{pair.name}, {side}: {facts['open_uploads']} uploads are open;"
                             f" unknown to the server: {facts['unknown']}")  # fmt: skip
        own, ours = written["own"], written["ours"]
        if len(own) != len(ours) or abs(sum(own) - sum(ours)) > sum(own) // 100:
            raise Failed(f"{pair.name}: own wrote {own}, ours {ours}")
    return done


def failing(pair: Pair, side: str, trip: str, url: str) -> None:
    """Tell what a whole run makes; or fail. What runs at the end of a process that failed runs."""
    ask(controlled(url), "reset?verify=0")
    try:
        getattr(pair, side)(pair.source(trip), f"s3://{BUCKET}/table")
    except Exception as error:
        if not _is_ours(error):
            raise
        print(json.dumps({"raised": type(error).__name__}), flush=True)


def _is_ours(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, Broken) or "failed half-way" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def clean() -> None:
    """What an operator does after a kill."""
    import magic_committer as mc

    for _ in ("the job", "its record, which is closed by now"):
        report = mc.cleanup(f"s3://{BUCKET}/table", dead_after=0, leftover_after=0, forget_after=0)
        print(json.dumps({"did": list(report.did), "errors": [str(e) for e in report.errors]}))


# In the program -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Left:
    """What a failure left: sizes of visible objects, those of a whole run, open uploads; and the
    committer's own objects."""

    pair: str
    side: str
    trip: str
    visible: list[int]
    whole: list[int]
    open_uploads: int
    own_objects: int = 0
    cleaned: str = ""

    @property
    def told(self) -> str:
        """In words."""
        uploads = f"{self.open_uploads} upload{'s' * (self.open_uploads > 1)} open"
        return self._seen() + (f", {uploads}" if self.open_uploads else "")

    def _seen(self) -> str:
        if not self.visible:
            return "nothing visible"
        if len(self.whole) == 1:
            seen, whole = sum(self.visible) / MiB, sum(self.whole) / MiB
            return f"**a cut file, {seen:.0f} of {whole:.0f} MiB**"
        cut = sum(size < min(self.whole) * SAME for size in self.visible)
        also = f", {cut} of them cut" if cut else ""
        return f"**{len(self.visible)} of {len(self.whole)} files{also}**"


class Program:
    """Runs the children against one server."""

    def __init__(self, on: Server, rounds: int) -> None:
        self.on = on
        self.rounds = rounds

    def child(self, *given: str) -> tuple[int, list[dict[str, Any]], str]:
        """Run this module in a process of its own: exit code, lines of JSON, standard error."""
        with tempfile.TemporaryDirectory(prefix="magic-committer-bench-") as folder:
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.own_writers", "--run", *given, self.on.url],
                cwd=ROOT,
                env=environment(self.on.url, f"{folder}/aws-config", unsigned=True),
                capture_output=True,
                text=True,
                timeout=RUN_SECONDS_MAX,
            )
        lines = [json.loads(one) for one in done.stdout.splitlines() if one.startswith("{")]
        return done.returncode, lines, done.stderr

    def timed(self, pair: Pair) -> list[Turn]:
        """Time a pair.

        Raises:
            Failed: a side failed.
        """
        code, lines, error = self.child("time", pair.name, str(self.rounds))
        if code or not lines:
            raise Failed(f"{pair.name} failed:\n{error.strip()[-2000:]}")
        return [Turn(**one) for one in lines[-1]["turns"]]

    def failed(self, pair: Pair, side: str, trip: str, whole: list[int]) -> Left:
        """Let one fail, and look at what it left.

        Raises:
            Failed: it failed otherwise than it was told to.
        """
        code, lines, error = self.child("fail", pair.name, side, trip)
        wanted = -signal.SIGKILL if trip == "killed" else 0
        raised = any("raised" in one for one in lines)
        # pyarrow's dataset writer sometimes aborts its process after such an error.
        aborted = side == "own" and raised and code == -signal.SIGABRT
        if not (code == wanted or aborted) or (trip == "raises") != raised:
            raise Failed(
                f"{pair.name}, {side}, {trip}: exit code {code}, said {str(lines)[:200]};"
                f" {error.strip()[-1500:]}"
            )
        facts = facts_of(self.on.url)
        left = Left(
            pair.name, side, trip, shape(facts), whole, facts["open_uploads"],
            facts["object_count"] - len(shape(facts)),
        )  # fmt: skip
        return left if side == "own" or trip == "whole" else self._cleaned(left)

    def _cleaned(self, left: Left) -> Left:
        code, lines, error = self.child("clean", left.pair)
        if code:
            raise Failed(f"cleanup after {left.pair}, {left.trip}: {error.strip()[-1500:]}")
        facts = facts_of(self.on.url)
        after = f"{facts['object_count']} objects, {facts['open_uploads']} uploads"
        if lines and lines[-1]["errors"]:
            after += f"; {lines[-1]['errors']}"
        return Left(**{**asdict(left), "cleaned": after})


@dataclass
class Found:
    """All that was measured."""

    times: dict[str, list[Turn]] = field(default_factory=dict)
    left: list[Left] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    load: tuple[float, float] = (0.0, 0.0)


def median(runs: Iterable[float]) -> float:
    """Of some runs."""
    return statistics.median(list(runs))


def ratios(runs: Sequence[Turn]) -> list[float]:
    """Of each round: ours to its own."""
    own, ours = ([t.seconds for t in runs if t.side == side] for side in SIDES)
    return [b / a for a, b in zip(own, ours, strict=True)]


def time_table(found: Found) -> Table:
    """Return library, lines, and the time of ours as a multiple of its own."""
    rows = [["library (its own writer)", "lines changed", "× its own (min–max)"]]
    for pair in PAIRS:
        runs = found.times.get(pair.name)
        if not runs:
            continue
        each = ratios(runs)
        ratio = f"{median(each):.2f}"
        rows.append([
            f"{pair.library} ({pair.writer})"
            + (f", {pair.partitions} files" if pair.partitions > 1 else ""),
            str(pair.lines),
            (f"**{ratio}**" if float(ratio) > RATIO_MAX else ratio)
            + f" ({min(each):.2f}–{max(each):.2f})",
        ])  # fmt: skip
    return rows


def failure_table(found: Found) -> Table:
    """Return what each failure left of each library's own writer."""
    rows = [["its own writer leaves", *FAILURES.values()]]
    by_name = {(one.pair, one.side, one.trip): one.told for one in found.left}
    for pair in PAIRS:
        cells = [by_name.get((pair.name, "own", trip), "") for trip in FAILURES]
        if any(cells):
            rows.append([f"{pair.library} ({pair.writer})", *cells])
    return rows


def of_ours(found: Found) -> str:
    """Return what the failures left of ours: a sentence, and each that left more."""
    ours = [one for one in found.left if one.side == "ours"]
    more = [
        f"* {one.pair}, {FAILURES[one.trip]}: {one.told}; after `cleanup` {one.cleaned}"
        for one in ours
        if one.visible or one.cleaned != "0 objects, 0 uploads"
    ]
    said = "With this library each left nothing visible, and nothing at all after `cleanup`"
    return "\n".join([f"{said}, but:\n", *more]) if more else f"{said}."


def block(found: Found, seconds: float) -> str:
    """What stands in the documentation."""
    from importlib.metadata import PackageNotFoundError, version

    versions = []
    for name in sorted({name for pair in PAIRS for name in pair.needs} | {"magic-committer"}):
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    rounds = max((len(runs) // 2 for runs in found.times.values()), default=0)
    said = f"Bold: more than {RATIO_MAX} × its own."
    parts = [
        f"Measured on {time.strftime('%Y-%m-%d')} in {seconds / 60:.0f} minutes, {os.cpu_count()}"
        f" cores, load {found.load[0]:.1f} before and {found.load[1]:.1f} after. "
        f"{', '.join(versions)}.",
    ]
    if found.times:
        parts += [
            markdown(time_table(found)),
            f"Medians of {rounds} rounds, in turns: a file of 64 MiB, or files of 1 MiB. {said}",
        ]
    if found.left:
        table = markdown(failure_table(found)).replace("---:", "---")  # words, not figures
        parts += ["### What each leaves when it fails half-way", table, f"{of_ours(found)} {AFTER}"]
    if found.left_out:
        parts.append(
            "\n".join(f"* Left out: {name}: {why}" for name, why in found.left_out.items())
        )
    return "\n\n".join(parts)


AFTER = (
    "Without `unique=True` the uploads of a killed process stay until a lifecycle rule removes"
    " them: nothing says whose they are."
)
MARKS = ("<!-- own writers: begin -->", "<!-- own writers: end -->")


def placed(page: str, text: str) -> str:
    """The page with the text between its marks.

    Raises:
        ValueError: the marks are not there once each, in order.
    """
    begin, end = MARKS
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if len(pattern.findall(page)) != 1:
        raise ValueError(f"{PAGE.name} needs {begin} and {end}, once each")
    return pattern.sub(lambda _: f"{begin}\n\n{text}\n\n{end}", page)


def say(text: str) -> None:
    """Progress."""
    print(text, file=sys.stderr, flush=True)


def measure(
    program: Program, pairs: Sequence[Pair], *, times: bool = True, failures: bool = True
) -> Found:
    """Everything, one after the other."""
    found = Found()
    before = os.getloadavg()[0]
    for pair in pairs:
        if pair.missing:
            found.left_out[pair.library] = f"{', '.join(pair.missing)} missing: {INSTALL}"
            say(f"{pair.library} is left out: {found.left_out[pair.library]}")
            continue
        try:
            if pair.timed and times:
                runs = found.times[pair.name] = program.timed(pair)
                say(f"{pair.library} ({pair.writer}): {median(ratios(runs)):.2f} × its own")
            if pair.failing and failures:
                _fail(program, pair, found)
        except (Failed, subprocess.TimeoutExpired) as error:
            found.problems.append(str(error))
            say(str(error))
    found.load = before, os.getloadavg()[0]
    return found


def _fail(program: Program, pair: Pair, found: Found) -> None:
    for side in SIDES:
        whole = program.failed(pair, side, "whole", []).visible
        for trip in FAILURES:
            left = program.failed(pair, side, trip, whole)
            found.left.append(left)
            say(f"{pair.library}, {side}, {trip}: {left.told}; {left.cleaned}")


def run(given: Sequence[str]) -> None:
    """What a child does."""
    what, name, *more, url = given
    (pair,) = [one for one in PAIRS if one.name == name]
    if what == "time":
        done = turns(pair, int(more[0]), url)
        print(json.dumps({"turns": [asdict(turn) for turn in done]}))
    elif what == "fail":
        failing(pair, more[0], more[1], url)
    else:
        clean()


def main(given: Sequence[str] | None = None) -> int:
    """Measure and print; 1 if a pair failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.own_writers")
    parser.add_argument("--rounds", type=int, default=5, help="how many (%(default)s)")
    parser.add_argument("--only", default="", help="pairs whose name has one of these words")
    parser.add_argument("--no-times", action="store_true", help="only the failures")
    parser.add_argument("--no-failures", action="store_true", help="only the times")
    parser.add_argument("--list", action="store_true", help="only say what there is")
    parser.add_argument("--write-docs", action="store_true", help="into docs/comparison.md")
    parser.add_argument("--run", nargs="+", help=argparse.SUPPRESS)
    chosen = parser.parse_args(given)
    if chosen.run:
        run(chosen.run)
        return 0
    words = chosen.only.replace(",", " ").split()
    pairs = [p for p in PAIRS if not words or any(word in p.name for word in words)]
    if chosen.list or not pairs:
        print("\n".join(f"{pair.name:20} {pair.library}, {pair.writer}" for pair in pairs or PAIRS))
        return int(not pairs)
    began = time.monotonic()
    with server.fast() as on:
        found = measure(
            Program(on, chosen.rounds), pairs,
            times=not chosen.no_times, failures=not chosen.no_failures,
        )  # fmt: skip
    text = block(found, time.monotonic() - began)
    print(text)
    if chosen.write_docs:
        PAGE.write_text(placed(PAGE.read_text(encoding="utf-8"), text), encoding="utf-8")
    return int(bool(found.problems))


if __name__ == "__main__":
    sys.exit(main())
