"""Search production's own code over all interleavings of its processes, by command.

python -m tests.model                         every configuration, with its faults
python -m tests.model --faults 2 [NAME…]      with another number of faults
python -m tests.model --turns 3               of so many changes of turn; default: without bound
python -m tests.model --without RULE          the configuration of a rule, without it: the trace
python -m tests.model --table                 the rules that are taken away
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.model.configurations import CONFIGURATIONS
from tests.model.rules import NOT_SEARCHED, RULES
from tests.model.search import STATES_MAX, Search


def main(arguments: list[str] | None = None) -> int:
    """The command; returns its exit code: 1 if a promise is broken where all rules are in place."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="configurations; all if none")
    parser.add_argument("--faults", type=int, help="faults of each search")
    parser.add_argument("--turns", type=int, help="changes of turn of each search")
    parser.add_argument("--states", type=int, default=STATES_MAX, help="stop at so many")
    parser.add_argument("--without", metavar="RULE", help="take a rule away, print the trace")
    parser.add_argument("--table", action="store_true", help="print the rules")
    given = parser.parse_args(arguments)
    if given.table:
        print(*RULES, *(f"not seen: {name}: {why}" for name, why in NOT_SEARCHED.items()), sep="\n")
        return 0
    if given.without:
        for rule in RULES:
            if rule.name == given.without:
                print(f"{rule.configuration}: {rule.search(given.faults, given.turns)}")
                return 0
        parser.error(f"no rule {given.without!r}; there are: {', '.join(r.name for r in RULES)}")
    if unknown := set(given.names) - CONFIGURATIONS.keys():
        parser.error(f"no configuration {unknown}; there are: {', '.join(CONFIGURATIONS)}")
    names = given.names or list(CONFIGURATIONS)
    return _search(names, given.faults, given.turns, given.states)


def _search(names: list[str], faults: int | None, turns: int | None, states_max: int) -> int:
    states, broken, began = 0, 0, time.process_time()
    for name in names:
        before = time.process_time()
        configuration = CONFIGURATIONS[name]()
        count = configuration.faults if faults is None else faults
        result = Search(configuration, count, turns).run(states_max)
        states, broken = states + result.states, broken + bool(result.violation)
        print(f"{name}, {count} faults: {result}, {time.process_time() - before:.1f} s", flush=True)
    seconds = time.process_time() - began
    print(f"{len(names)} configurations, {states:,} states, {broken} violations, {seconds:.0f} s")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
