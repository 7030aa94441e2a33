"""What a soak does, drawn from its seed: kinds of jobs, and who is killed when.

How far a process has come when it is killed depends on the machine; so a seed gives the same plan
again, not the same run.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal[
    "memory", "listing", "write", "fail", "fail_partitions", "replace", "replace_partitions",
    "raise",
]  # fmt: skip
"""``memory``: threads, results; ``listing``: workers in processes of their own, found by listing;
``write`` and the modes: one process; ``raise``: its body raises, so it is aborted."""
MORE_OFTEN: tuple[Kind, ...] = ("listing", "listing", "memory")
"""They have the most processes to kill."""
Ending = Literal["recover", "abort", "cleanup"]

FILES_MIN, FILES_MAX = 4, 60
EMPTY_SHARE, LARGE_SHARE = 0.1, 0.02
DRIVER_KILLED_SHARE = 0.45
WORKER_KILLED_SHARE = 0.6
KILL_SECONDS_MAX = 1.6
"""Of a driver, after its start: a job takes about so long."""
SERVER_QUIET_SECONDS = (4.0, 12.0)
"""Between two kills of the server."""
SERVER_DOWN_SECONDS = (0.1, 3.0)


@dataclass(frozen=True)
class Round:
    """One job.

    Attributes:
        number: names its destination.
        seed: of the files' bytes.
        driver_lives: seconds until its driver is killed; None: nobody kills it.
        worker_killed: which task's first process is killed, of a job of kind ``listing``.
        worker_lives: seconds until then.
        ending: what an operator does where a killed driver's job is left.
    """

    number: int
    kind: Kind
    files: int
    seed: int
    driver_lives: float | None
    worker_killed: int | None
    worker_lives: float
    ending: Ending

    @property
    def dest(self) -> str:
        """Where it writes; nobody else does."""
        return f"t{self.number:06}"

    @property
    def old(self) -> dict[str, bytes]:
        """What is there before: of the modes that replace it all must go, or all must stay."""
        return {"dt=0/old.csv": b"old %d" % self.number} if self.kind.startswith("replace") else {}

    def contents(self) -> dict[str, bytes]:
        """Its files: names, and bytes that no other job has. Some are empty, some have parts."""
        chance = random.Random(self.seed)
        made = {}
        for number in range(self.files):
            drawn = chance.random()
            size = 0 if drawn < EMPTY_SHARE else chance.randint(1, 2000)
            if EMPTY_SHARE <= drawn < EMPTY_SHARE + LARGE_SHARE:
                size = 6 * 1024**2
            body = b"" if size == 0 else (b"%016x\n" % chance.getrandbits(64)) * (size // 17 + 1)
            made[f"dt={number % 3}/part-{number:03}"] = body
        return made


def rounds(seed: int) -> Iterator[Round]:
    """The jobs of a seed, without an end."""
    chance = random.Random(f"rounds {seed}")
    number = 0
    while True:
        killed = chance.random() < DRIVER_KILLED_SHARE
        worker = chance.random() < WORKER_KILLED_SHARE
        yield Round(
            number=number,
            kind=chance.choice((*get_args(Kind), *MORE_OFTEN)),
            files=chance.randint(FILES_MIN, FILES_MAX),
            seed=chance.getrandbits(64),
            driver_lives=chance.uniform(0.02, KILL_SECONDS_MAX) if killed else None,
            worker_killed=chance.randint(0, 2) if worker else None,
            worker_lives=chance.uniform(0.0, 0.5),
            ending=chance.choice(get_args(Ending)),
        )
        number += 1


def server_kills(seed: int) -> Iterator[tuple[float, float]]:
    """How long the server lives, and how long it is down, again and again."""
    chance = random.Random(f"server {seed}")
    while True:
        yield chance.uniform(*SERVER_QUIET_SECONDS), chance.uniform(*SERVER_DOWN_SECONDS)
