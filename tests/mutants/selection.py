"""Which mutants there are: the hand-made, and a draw of those that the operators make.

The draw is by the hash of each name without its module, so that it stays the same for all code that
stays the same, wherever it moves. What was ever tried stays in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache

from tests.mutants import judge
from tests.mutants.explained import EXPLAINED
from tests.mutants.handwork import HAND_MADE
from tests.mutants.operators import drawn_from
from tests.mutants.source import GoneError, Mutant, files

SHARES = {
    "protocol/": 0.05, "commit/": 0.02, "committers/": 0.02, "maintenance/": 0.01,
}  # fmt: skip
"""Of the operators' mutants of a folder: how many are drawn, beside those that were ever tried."""
SAMPLE = 10
"""Drawn mutants that CI tries beside the hand-made."""


def rank(mutant: Mutant) -> float:
    """A mutant's place in every draw, from 0 to 1: by its name, whatever its module."""
    name = mutant.id.partition(":")[2]
    found = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(found, "big") / 2**64


def hand_made() -> list[Mutant]:
    """The hand-made ones. Raises `GoneError`: the code of one has changed: the message names them
    all."""
    made, gone = [], []
    for one in HAND_MADE:
        try:
            mutant = one.mutant()
            mutant.tree()
            made.append(mutant)
        except GoneError as error:
            gone.append(str(error))
    if gone:
        raise GoneError("\n".join(gone))
    return made


def operated(path: str) -> list[Mutant]:
    """All that the operators make of a module, but for what is no program."""
    return [mutant for mutant in drawn_from(path) if mutant.is_program()]


def names() -> set[str]:
    """The ids of all mutants that there are, drawn or not."""
    made = {f"hand:{one.name}" for one in HAND_MADE}
    return made | {mutant.id for path in files() for mutant in drawn_from(path)}


def share(path: str) -> float:
    """Of a module's mutants."""
    return next(part for folder, part in SHARES.items() if path.startswith(folder))


@cache
def whole() -> tuple[Mutant, ...]:
    """What `make mutants` tries."""
    tried = judge.known_killers().keys() | EXPLAINED.keys()
    drawn = [
        mutant
        for path in files()
        for mutant in drawn_from(path)
        if (rank(mutant) < share(path) or mutant.id in tried) and mutant.is_program()
    ]
    return (*hand_made(), *drawn)


def sample(mutants: Sequence[Mutant], known: set[str]) -> list[Mutant]:
    """What CI tries: the hand-made, and some of the others, those first whose killers are known:
    what must be looked for takes long. In an order that mixes the modules, for the time is enough
    for a part only."""
    by_hand = [mutant for mutant in mutants if mutant.by_hand]
    drawn = sorted(set(mutants) - set(by_hand), key=lambda m: (m.id not in known, rank(m)))
    return sorted([*by_hand, *drawn[:SAMPLE]], key=rank)
