"""Bad weather between the library and its store: the hostile network's faults, in spells.

Which spell comes when is drawn from the seed; which request is struck is chance: it depends on how
many come.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.network.faults import FAULTS, Fault
from tests.network.proxy import Line, Proxy
from tests.serving import serving

SPELL_SECONDS = (0.5, 3.0)
FAULT = {fault.name: fault for fault in FAULTS}


@dataclass(frozen=True)
class Spell:
    """Some seconds of one kind of weather. ``name``: of the fault that strikes requests; ``fair``:
    none does. ``share``: how many of them."""

    name: str
    share: float


SPELLS = (
    Spell("fair", 0.0), Spell("reset in the request", 0.2), Spell("reset in the reply", 0.2),
    Spell("truncated reply", 0.2), Spell("503 storm", 0.8), Spell("late reply", 0.3),
    Spell("slow reply", 0.1),
)  # fmt: skip


class Weather(Line):
    """The way of all requests. ``url``: what the library takes for its store. ``met``: how often
    each fault struck; ``passed``: requests that nothing was done to. ``spells``: the weather to
    come; a test may set it."""

    def __init__(self, seed: int) -> None:
        super().__init__(None, "", "always")
        self.url = ""
        self.met: Counter[str] = Counter()
        self.spells: Iterator[tuple[Spell, float]] = drawn(seed)
        self._chance = random.Random(f"struck {seed}")
        self._spell, self._until = SPELLS[0], 0.0

    def strikes(self, phase: str) -> Fault | None:
        """What is done to the next request, whatever it is."""
        if time.monotonic() >= self._until:
            self._spell, seconds = next(self.spells)
            self._until = time.monotonic() + seconds
        struck = self._chance.random() < self._spell.share
        self.met[self._spell.name if struck else "passed"] += 1
        return FAULT[self._spell.name] if struck else None


def drawn(seed: int) -> Iterator[tuple[Spell, float]]:
    """Spells, and how many seconds each lasts, without an end."""
    chance = random.Random(f"weather {seed}")
    while True:
        for spell in chance.sample(SPELLS, len(SPELLS)):
            yield spell, chance.uniform(*SPELL_SECONDS)


@contextmanager
def weather(upstream: str, seed: int) -> Iterator[Weather]:
    """Run it, in threads of this process."""
    made, proxy = Weather(seed), Proxy(upstream)
    proxy.line = made
    with serving(proxy.serve, ending=proxy.ending) as server:
        made.url = server.url
        yield made
