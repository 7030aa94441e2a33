"""Change the library a little, and see that something fails: `make mutants`.

    python -m tests.mutants                  all that are drawn, and the hand-made
    python -m tests.mutants --sample         what CI tries
    python -m tests.mutants --only WORD      those whose id holds a word; --all: of all there are
    python -m tests.mutants --show WORD      the changes, as diffs

Fails where a mutant survives, where one is gone that explained.py explains (these are not tried),
where the place of a hand-made one is gone, and where the time was enough for a few only.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence

from tests.mutants import judge, selection
from tests.mutants.explained import EXPLAINED
from tests.mutants.forks import BrokenError, Forks
from tests.mutants.judge import Verdict
from tests.mutants.source import GoneError, Mutant, files
from tools import lifeline

WHOLE_SECONDS = 3600.0
AT_ONCE = 50
"""Of so many mutants at a time the known killers are run on the unchanged library first."""
STALE = """
What killed these the last time kills them no more. Look for what does, which takes minutes each:
    python -m tests.mutants --all --only NAME --keep"""
TRIED_MIN = 40
"""A run that is out of time goes on until it has tried so many: a slow machine is no fault."""


def main() -> int:
    """0 if every mutant was killed, but for those that are explained."""
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
    parser.add_argument(
        "--seconds", type=float, default=WHOLE_SECONDS, help="begin no more after so long"
    )
    parser.add_argument("--keep", action="store_true", help="note the killers in killers.json")
    parser.add_argument("--unknown", action="store_true", help="only those without a known killer")
    parser.add_argument(
        "--known", action="store_true", help="only those with a known killer, and only by it"
    )
    options = parser.parse_args()
    try:
        mutants = [m for m in _all(options.all) if options.only in m.id]
        if options.show:
            print("\n\n".join(f"{m.id}\n{m.diff()}" for m in mutants if options.show in m.id))
            return 0
        known = judge.known_killers()
        chosen = [mutant for mutant in mutants if options.only or mutant.id not in EXPLAINED]
        if options.sample:
            chosen = selection.sample(chosen, set(known))
        if options.unknown or options.known:
            chosen = [mutant for mutant in chosen if (mutant.id in known) is options.known]
        verdicts = run(chosen, options.jobs, time.monotonic() + options.seconds, options.known)
    except GoneError as error:
        print(f"the place of a hand-made mutant is gone, it must follow the code:\n{error}")
        return 1
    except BrokenError as error:
        print(f"no answer: {error}")
        return 1
    if options.keep:
        judge.keep_killers(verdicts, selection.names())
    failures = told(chosen, verdicts)
    if options.known and any(not (v.killed or v.broken) for v in verdicts):
        print(STALE)
    return 1 if failures else 0


def _all(everything: bool) -> list[Mutant]:
    if not everything:
        return list(selection.whole())
    drawn = [mutant for path in files() for mutant in selection.operated(path)]
    return [*selection.hand_made(), *drawn]


def run(
    mutants: Sequence[Mutant], jobs: int, until: float, killer_only: bool = False
) -> list[Verdict]:
    """Try mutants, and print each verdict as it comes. Raises `BrokenError`: a child gave no
    answer, or something fails without any mutant."""
    known = judge.known_killers()
    verdicts: list[Verdict] = []
    with Forks(jobs) as forks:
        for first in range(0, len(mutants), AT_ONCE):
            if time.monotonic() >= until and len(verdicts) >= TRIED_MIN:
                break
            these = mutants[first : first + AT_ONCE]
            killers = [known[m.id] for m in these if m.id in known]
            for failed in forks.run([judge.unchanged(killers[one::jobs]) for one in range(jobs)]):
                if failed:
                    raise BrokenError(f"without any mutant: {failed}")
            for verdict in judge.all_verdicts(forks, these, until, killer_only=killer_only):
                verdicts.append(verdict)
                mark = "killed" if verdict.killed else "NO ANSWER" if verdict.broken else "SURVIVED"
                number = f"{len(verdicts):>4}/{len(mutants)}"
                by = verdict.by.removeprefix("tests/")
                seconds = f"{verdict.seconds:>5.1f} s"
                print(f"{number} {mark:<9} {seconds}  {verdict.mutant.id}  {by}", flush=True)
    return verdicts


def told(mutants: Sequence[Mutant], verdicts: Sequence[Verdict]) -> int:
    """Print what is wrong, and the sum; how many things are wrong."""
    wrong = 0
    for verdict in verdicts:
        name = verdict.mutant.id
        if verdict.broken:
            print(f"\nno verdict: {name}: {verdict.broken}")
        elif not verdict.killed and name not in EXPLAINED:
            print(f"\nsurvived, and not explained: {name}\n{verdict.mutant.diff()}")
        elif verdict.killed and name in EXPLAINED:
            print(f"\nexplained, and killed by {verdict.by}: {name}")
        else:
            continue
        wrong += 1
    not_tried = len(mutants) - len(verdicts)
    killed = sum(verdict.killed for verdict in verdicts)
    by_hand = sum(verdict.mutant.by_hand for verdict in verdicts)
    print(
        f"\n{len(verdicts)} mutants ({by_hand} by hand): {killed} killed,"
        f" {len(verdicts) - killed} survived; {wrong} things wrong"
        + (f"; not tried, for want of time: {not_tried}" if not_tried else "")
    )
    return wrong


if __name__ == "__main__":
    sys.exit(lifeline.guarded(main))
