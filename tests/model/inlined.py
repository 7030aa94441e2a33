"""What was searched of files without an upload (`tests.model.actors.inlined`).

Production has no such files. These searches are the reason: each form of a PUT that publishes
breaks a promise, without a fault: a pause is enough. The one form that keeps the promises
(``timed``) needs more of a store than S3 gives.

python -m tests.model.inlined                            the tables
python -m tests.model.inlined "if absent" "taken away"   one search, with its trace
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.model.actors.inlined import FORMS, Noted, commit, recover, revert, rewrite, take_away
from tests.model.actors.job import Accepted, Job
from tests.model.promises import Promised
from tests.model.scenery import actor, objects, started
from tests.model.search import Actor, Configuration, Search
from tests.model.store import Data, File, PendingSet
from tests.model.trace import Result

TIMED = "timed"
OLD = Data("", "", "old")
"""Another program's file."""

Without = frozenset[str]
ALL: Without = frozenset()


@dataclass(frozen=True)
class _Scene:
    """A running job with one committed task, whose file is in its pendingset."""

    job: Job
    form: str
    there: Data | None = None
    """What lies at its key before."""

    @property
    def file(self) -> File:
        return File(self.job.key("x"), "", (self.job.uuid, "a0"))

    @property
    def accepted(self) -> Accepted:
        return ((self.job.set("a0"), PendingSet(self.job.uuid, "t", "a0", (self.file,))),)

    @property
    def store(self) -> dict[str, Any]:
        before = {} if self.there is None else objects({self.file.key: self.there})
        return {**started(self.job), **objects(dict(self.accepted)), **before}

    @property
    def noted(self) -> Noted:
        return (self.there,)

    def driver(self) -> Actor:
        program = partial(commit, self.job, "driver", self.form, self.accepted, self.noted)
        return actor("driver", self.job, program)

    def recovery(self, name: str, **options: Any) -> Actor:
        program = partial(recover, self.job, name, self.form, self.noted)
        return actor(name, self.job, program, **options)

    def operator(self) -> Actor:
        return actor("operator", self.job, partial(revert, self.job, "operator", self.form))

    def end(self) -> Actor:
        """A recovery when everybody has ended."""
        return self.recovery("end", after=True, faulty=False)


def _other(program: Callable[[], Any]) -> Actor:
    """A program that knows nothing of the job."""
    return Actor("other", program, faulty=False)


def taken_away(form: str, without: Without) -> Configuration:
    """A driver, a recovery at any moment, and another program that takes the file away when the job
    is over."""
    scene = _Scene(Job(marks=False, without=without), form)
    other = _other(partial(take_away, scene.job, scene.file.key))
    return Configuration(
        "taken away",
        (scene.driver(), scene.recovery("recovery"), other, scene.end()),
        scene.store,
        faults=2,
        promised=Promised(contested=True),
    )


def driver_alone(form: str, without: Without) -> Configuration:
    """The same without the recovery: only the driver's own late request may hurt."""
    scene = _Scene(Job(marks=False, without=without), form)
    other = _other(partial(take_away, scene.job, scene.file.key))
    return Configuration(
        "driver alone",
        (scene.driver(), other, scene.end()),
        scene.store,
        faults=2,
        promised=Promised(contested=True),
    )


def undone(form: str, without: Without) -> Configuration:
    """A driver, and an operator who undoes what is decided."""
    scene = _Scene(Job(marks=False, without=without), form)
    return Configuration(
        "undone", (scene.driver(), scene.operator(), scene.end()), scene.store, faults=2
    )


def undone_or_recovered(form: str, without: Without) -> Configuration:
    """The same, and a recovery."""
    scene = _Scene(Job(marks=False, without=without), form)
    return Configuration(
        "undone or recovered",
        (scene.driver(), scene.operator(), scene.recovery("recovery"), scene.end()),
        scene.store,
    )


def recovered_twice(form: str, without: Without) -> Configuration:
    """A driver, two recoveries, and another program that takes the file away."""
    scene = _Scene(Job(marks=False, without=without), form)
    other = _other(partial(take_away, scene.job, scene.file.key))
    return Configuration(
        "recovered twice",
        (scene.driver(), scene.recovery("r1"), scene.recovery("r2"), other, scene.end()),
        scene.store,
        faults=0,
        promised=Promised(contested=True),
    )


def written_back(form: str, without: Without) -> Configuration:
    """The job writes a key that holds something; another program writes that back when the job is
    over."""
    scene = _Scene(Job(marks=False, without=without), form, there=OLD)
    other = _other(partial(rewrite, scene.job, scene.file.key, OLD))
    return Configuration(
        "written back",
        (scene.driver(), scene.recovery("recovery"), other, scene.end()),
        scene.store,
        promised=Promised(contested=True),
    )


def neighbour(form: str, without: Without) -> Configuration:
    """A job of mode ``fail``, and another program that writes its key at any moment."""
    scene = _Scene(Job(mode="fail", marks=False, without=without), form)
    other = _other(partial(rewrite, Job("nobody"), scene.file.key, OLD))
    return Configuration(
        "neighbour",
        (scene.driver(), other, scene.end()),
        scene.store,
        faults=2,
        promised=Promised(contested=True, overwrites=False),
    )


CONFIGURATIONS: dict[str, Callable[[str, Without], Configuration]] = {
    made.__name__.replace("_", " "): made
    for made in (
        taken_away,
        driver_alone,
        undone,
        undone_or_recovered,
        recovered_twice,
        written_back,
        neighbour,
    )
}


@dataclass(frozen=True)
class Broken:
    """What a search must find.

    Attributes:
        what: a form; or a rule that is taken away from the form ``timed``.
        promise, configuration, faults, requests: as `tests.model.rules.Rule` has them.
    """

    what: str
    promise: str
    configuration: str
    faults: int
    requests: int

    def search(self, faults: int | None = None) -> Result:
        """Search the configuration with the form, or without the rule."""
        form, without = (self.what, ALL) if self.what in FORMS else (TIMED, frozenset({self.what}))
        made = CONFIGURATIONS[self.configuration](form, without)
        return Search(made, self.faults if faults is None else faults).run()


BROKEN = (
    Broken("plain", "I2", "taken away", 0, 17),
    Broken("plain", "I2", "driver alone", 1, 15),
    Broken("plain", "I3", "undone", 0, 10),
    Broken("plain", "I2", "written back", 0, 17),
    Broken("plain", "I6", "neighbour", 0, 6),
    Broken("if absent", "I2", "taken away", 0, 17),
    Broken("if absent", "I2", "driver alone", 1, 15),
    Broken("if absent", "I3", "undone", 0, 10),
    Broken("if as planned", "I2", "taken away", 0, 17),
    Broken("if as planned", "I2", "driver alone", 1, 15),
    Broken("if as planned", "I3", "undone", 0, 10),
    Broken("if as planned", "I2", "written back", 0, 17),
    Broken("look before", "I2", "taken away", 0, 19),
    Broken("look before", "I2", "driver alone", 1, 17),
    Broken("look before", "I3", "undone", 0, 11),
    Broken("look after", "I2", "taken away", 0, 18),
    Broken("look after", "I2", "driver alone", 1, 16),
    Broken("look after", "I3", "undone", 0, 10),
    Broken("look before and after", "I2", "taken away", 0, 20),
    Broken("look before and after", "I2", "driver alone", 1, 18),
    Broken("look before and after", "I3", "undone", 0, 11),
)
"""The forms, and where each breaks a promise."""

RULES = (
    Broken("only the holder publishes", "I2", "taken away", 0, 19),
    Broken("signed before the read", "I3", "undone", 0, 11),
    Broken("a signature ends", "I3", "undone", 0, 11),
    Broken("a signature ends when the write takes effect", "I3", "undone", 0, 11),
    Broken("a successor waits", "I2", "taken away", 0, 20),
    Broken("a revert waits", "I3", "undone", 0, 11),
    Broken("the holder waits for his own", "I2", "driver alone", 1, 17),
    Broken("only where nothing is", "I6", "neighbour", 0, 7),
)
"""The rules of the form ``timed``, each taken away."""


def table() -> str:
    """The forms and the rules as two Markdown tables."""
    names = [name for name in CONFIGURATIONS if any(name == b.configuration for b in BROKEN)]
    found = {(b.what, b.configuration): f"{b.promise}, {b.requests}" for b in BROKEN}
    lines = ["| form of the PUT | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for form in FORMS:
        cells = [found.get((form, name), "") for name in names]
        lines.append(f"| {form} | " + " | ".join(cells) + " |")
    lines += ["", "| rule of the timed form, taken away | broken | in | faults | requests |"]
    lines += ["|---" * 5 + "|"]
    lines += [
        f"| {r.what} | {r.promise} | {r.configuration} | {r.faults} | {r.requests} |" for r in RULES
    ]
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Print what one search finds, with its trace: a form or a rule, and a configuration; without
    arguments the tables."""
    if not arguments:
        print(table())
        return 0
    for one in (*BROKEN, *RULES):
        if [one.what, one.configuration] == arguments:
            print(one.search())
            return 0
    print("there are:", *(f"{one.what!r} {one.configuration!r}" for one in (*BROKEN, *RULES)))
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
