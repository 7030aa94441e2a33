"""Change the library a little, and see that something fails: `make mutants`.

    python -m tests.mutants                  all that are drawn, and the hand-made
    python -m tests.mutants --sample         what CI tries
    python -m tests.mutants --only WORD      those whose id holds a word; --all: of all there are
    python -m tests.mutants --show WORD      the changes, as diffs

Fails where a mutant survives that explained.py does not explain, where one is killed or gone that
it does explain, where the place of a hand-made one is gone, and where the time was enough for a few
only.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence

from tests.mutants import judge, reach, selection
from tests.mutants.explained import EXPLAINED
from tests.mutants.forks import BrokenError, Forks
from tests.mutants.judge import Verdict
from tests.mutants.source import GoneError, Mutant, files
from tools import lifeline

WHOLE_SECONDS = 3600.0
UNMEASURED_MAX = 5
"""So many mutants without a known killer are tried without measuring what the tests run."""
AT_ONCE = 50
"""Of so many mutants at a time the known killers are run on the unchanged library first."""
STALE = """
What killed these the last time kills them no more. Look for what does, which takes minutes each:
    python -m tests.mutants --all --only NAME --keep"""
TRIED_MIN = 40
"""A run that is out of time goes on until it has tried so many: a slow machine is no fault."""


def main() -> int:
    """0 if every mutant was killed, or is explained."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--sample", action="store_true", help="what CI tries")
    parser.add_argument("--all", action="store_true", help="all mutants, not only those drawn")
    parser.add_argument("--only", default="", help="those whose id holds this")
    parser.add_argument("--show", default="", help="print the change of those, try none")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at once")
    parser.add_argument("--seconds", type=float, default=0.0, help="begin no more after so long")
    parser.add_argument("--keep", action="store_true", help="note the killers in killers.json")
    parser.add_argument("--unknown", action="store_true", help="only those without a known killer")
    parser.add_argument(
        "--known", action="store_true", help="only those with a known killer, and only by it"
    )
    parser.add_argument("--no-schedules", action="store_true", help="tests only: a quick look")
    options = parser.parse_args()
    try:
        mutants = [m for m in _all(options.all) if options.only in m.id]
        if options.show:
            print("\n\n".join(f"{m.id}\n{m.diff()}" for m in mutants if options.show in m.id))
            return 0
        known = judge.known_killers()
        chosen = (
            selection.sample(mutants, set(EXPLAINED), set(known)) if options.sample else mutants
        )
        if options.unknown or options.known:
            chosen = [mutant for mutant in chosen if (mutant.id in known) is options.known]
        seconds = options.seconds or WHOLE_SECONDS
        until = time.monotonic() + seconds
        verdicts = run(chosen, options.jobs, until, not options.no_schedules, options.known)
    except GoneError as error:
        print(f"the place of a hand-made mutant is gone, it must follow the code:\n{error}")
        return 1
    except BrokenError as error:
        print(f"no answer: {error}")
        return 1
    if options.keep:
        judge.keep_killers(verdicts, selection.names())
    part = options.sample or options.only or options.all or options.unknown or options.known
    complete = not part
    failures = told(chosen, verdicts, gone=_gone(mutants) if complete else ())
    if options.known and any(not (v.killed or v.broken) for v in verdicts):
        print(STALE)
    return 1 if failures else 0


def _all(everything: bool) -> list[Mutant]:
    if not everything:
        return list(selection.whole())
    drawn = [mutant for path in files() for mutant in selection.operated(path)]
    return [*selection.hand_made(), *drawn]


def _gone(mutants: Sequence[Mutant]) -> list[str]:
    names = {mutant.id for mutant in mutants}
    return [name for name in EXPLAINED if name not in names]


def run(
    mutants: Sequence[Mutant], jobs: int, until: float, schedules: bool = True,
    killer_only: bool = False,
) -> list[Verdict]:  # fmt: skip
    """Try mutants, and print each verdict as it comes. Raises `BrokenError`: a child gave no
    answer, or something fails without any mutant."""
    killers = judge.known_killers()
    verdicts: list[Verdict] = []
    with Forks(jobs) as forks:
        unknown = [m for m in mutants if m.id not in killers]
        measured = reach.measured(forks) if len(unknown) > UNMEASURED_MAX else None
        for first in range(0, len(mutants), AT_ONCE):
            if time.monotonic() >= until and len(verdicts) >= TRIED_MIN:
                break
            these = mutants[first : first + AT_ONCE]
            _see_that_killers_pass(forks, jobs, [killers[m.id] for m in these if m.id in killers])
            found = judge.all_verdicts(forks, these, measured, until, schedules, killer_only)
            for verdict in found:
                verdicts.append(verdict)
                _print_verdict(verdict, len(verdicts), len(mutants))
    return verdicts


def _see_that_killers_pass(forks: Forks, jobs: int, killers: Sequence[judge.Killer]) -> None:
    for failed in forks.run([judge.unchanged(killers[one::jobs]) for one in range(jobs)]):
        if failed:
            raise BrokenError(f"without any mutant: {failed}")


def _print_verdict(verdict: Verdict, number: int, of_them: int) -> None:
    mark = "killed  " if verdict.killed else "NO ANSWER" if verdict.broken else "SURVIVED"
    print(
        f"{number:>4}/{of_them} {mark} {verdict.seconds:>5.1f} s "
        f" {verdict.mutant.id}  {verdict.by.removeprefix('tests/')}",
        flush=True,
    )


def told(mutants: Sequence[Mutant], verdicts: Sequence[Verdict], gone: Sequence[str]) -> int:
    """Print the table; how many things are wrong."""
    wrong = 0
    for verdict in verdicts:
        name = verdict.mutant.id
        if verdict.broken:
            wrong += 1
            print(f"\nno verdict: {name}: {verdict.broken}")
        elif not verdict.killed and name not in EXPLAINED:
            wrong += 1
            print(f"\nsurvived, and not explained: {name}\n{verdict.mutant.diff()}")
        elif verdict.killed and name in EXPLAINED:
            wrong += 1
            print(f"\nexplained, and killed by {verdict.by}: {name}")
    for name in gone:
        wrong += 1
        print(f"\nexplained, and gone or not drawn: {name}")
    print(f"\n{table(verdicts)}")
    not_tried = len(mutants) - len(verdicts)
    killed = sum(verdict.killed for verdict in verdicts)
    survived = len(verdicts) - killed
    by_hand = sum(verdict.mutant.by_hand for verdict in verdicts)
    print(
        f"\n{len(verdicts)} mutants ({by_hand} by hand): {killed} killed, {survived} survived,"
        f" {survived and sum(v.mutant.id in EXPLAINED for v in verdicts if not v.killed)} of them"
        f" explained; {wrong} things wrong"
        + (f"; not tried, for want of time: {not_tried}" if not_tried else "")
    )
    return wrong


def table(verdicts: Sequence[Verdict]) -> str:
    """Mutants by module, and what killed them."""
    columns = ("promises", "unit", "fuzz", "cli", "adapter", "simulation", "hangs", "survived")
    counts: dict[str, Counter[str]] = {}
    for verdict in verdicts:
        counts.setdefault(verdict.mutant.path, Counter())[_column(verdict)] += 1
    rows = [f"{'module':<34}" + "".join(f"{name:>11}" for name in columns)]
    for path in sorted(counts):
        cells = "".join(f"{counts[path][name]:>11}" for name in columns)
        rows.append(f"{path:<34}{cells}")
    total: Counter[str] = sum(counts.values(), Counter())
    rows.append(f"{'all':<34}" + "".join(f"{total[name]:>11}" for name in columns))
    return "\n".join(rows)


def _column(verdict: Verdict) -> str:
    if not verdict.killed:
        return "survived"
    if "seed" in verdict.killer:
        return "simulation"
    if verdict.by.startswith("it does not end"):
        return "hangs"
    if verdict.by.partition("::")[0] in judge.adapter_tests():
        return "adapter"
    return next((name for name in reach.SUITES if f"tests/{name}/" in verdict.by), "promises")


if __name__ == "__main__":
    sys.exit(lifeline.guarded(main))
