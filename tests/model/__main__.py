"""Search the protocol's core by command.

python -m tests.model                         every configuration, each with its faults
python -m tests.model --faults 2 [NAME…]      with another number of faults
python -m tests.model --without RULE          each configuration of a rule, without it: the trace
python -m tests.model --table                 the removed rules as a table
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.model.configurations import CONFIGURATIONS
from tests.model.rules import RULES, TABLE
from tests.model.search import STATES_MAX, Search

NOTHING: frozenset[str] = frozenset()


def main(arguments: list[str] | None = None) -> int:
    """The command; returns its exit code: 1 if a promise is broken where all rules are in place."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="configurations; all if none")
    parser.add_argument("--faults", type=int, help="faults of each search")
    parser.add_argument("--states", type=int, default=STATES_MAX, help="give up beyond so many")
    parser.add_argument("--without", metavar="RULE", help="take a rule away, print the trace")
    parser.add_argument("--table", action="store_true", help="print the removed rules")
    given = parser.parse_args(arguments)
    if given.table:
        print(TABLE.read_text(encoding="utf-8"))
        return 0
    if given.without:
        for rule in RULES:
            if rule.name == given.without:
                print(f"{rule.configuration}: {rule.search()}")
                return 0
        parser.error(f"no rule {given.without!r}; there are: {', '.join(r.name for r in RULES)}")
    if unknown := set(given.names) - CONFIGURATIONS.keys():
        parser.error(f"no configuration {unknown}; there are: {', '.join(CONFIGURATIONS)}")
    return _search(given.names or list(CONFIGURATIONS), given.faults, given.states)


def _search(names: list[str], faults: int | None, states_max: int) -> int:
    states, broken, began = 0, 0, time.monotonic()
    for name in names:
        configuration = CONFIGURATIONS[name](NOTHING)
        count = configuration.faults if faults is None else faults
        before = time.monotonic()
        try:
            result = Search(configuration, count).run(states_max)
        except RuntimeError as error:
            print(f"{error}: not finished", flush=True)
            continue
        states += result.states
        broken += bool(result.violation)
        seconds = time.monotonic() - before
        print(f"{name}, {count} faults: {result}, {seconds:.1f} s", flush=True)
    seconds = time.monotonic() - began
    print(f"{len(names)} configurations, {states:,} states, {broken} violations, {seconds:.0f} s")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
