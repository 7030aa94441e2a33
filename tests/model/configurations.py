"""What is searched: small separate configurations, each around one part of the protocol.

With the library as it is each must be without violation; `rules` are taken away in some of them.
Most start from a store where the job is running and its tasks are done: what leads there is
searched in ``attempts`` and ``setup``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from magic_committer.protocol.record import StartedJob, TaskCommit
from tests.model import programs
from tests.model.processes import Program
from tests.model.programs import terms
from tests.model.promises import Promised
from tests.model.scene import J1, J2, Scene
from tests.model.search import Actor, Configuration
from tests.model.store import DEST, GHOST

Actors = tuple[Actor, ...]
Maker = Callable[[Scene], Actors]

CONFIGURATIONS: dict[str, Callable[[], Configuration]] = {}
BOTH = (J1, J2)


def configuration(
    *, name: str = "", faults: int = 1, ends: tuple[str, ...] = (J1,),
    promised: Promised | None = None, forgetful: bool = False, costly: bool = False,
    denials: bool = False,
) -> Callable[[Maker], Maker]:  # fmt: skip
    """Enter a configuration, under its function's name if it has none. The function fills the store
    and gives the actors; a recovery by each id in ``ends``, and a cleanup, come in the end."""

    def enter(function: Maker) -> Maker:
        told_name = name or function.__name__.replace("_", " ")

        def made() -> Configuration:
            scene = Scene(forgetful=forgetful, costly=costly)
            actors = function(scene)
            told = promised or Promised(jobs=tuple(one for one in ends if len(one) == 32))
            return Configuration(
                told_name, (*actors, *_in_the_end(ends, told)), scene.store, faults,
                forgetful=forgetful, costly=costly, denials=denials, promised=told,
            )  # fmt: skip

        CONFIGURATIONS[told_name] = made
        return function

    return enter


def _in_the_end(ids: tuple[str, ...], promised: Promised) -> Actors:
    if not ids:
        return ()
    last: dict[str, Any] = {"after": True, "faulty": False}
    recoveries: Actors = ()
    for name in ids:
        uuids = (name,) if name in promised.jobs else promised.jobs
        recoveries = (*recoveries, Actor(f"end {name[0]}", programs.recover(name), uuids, **last))
    every = (*promised.jobs, "any")
    return (*recoveries, Actor("cleanup", programs.clean(), every, hour_later=True, **last))


def actor(name: str, job: StartedJob, program: Program, **options: Any) -> Actor:
    return Actor(name, program, (job.uuid,), **options)


def _recovery(job: StartedJob) -> Actor:
    return actor("recovery", job, programs.recover(job.id))


def _commits(name: str, job: StartedJob, results: list[TaskCommit] | None = None) -> Actor:
    """A driver whose tasks are done; one that lists, without results."""
    return actor(name, job, programs.commit(job, results))


def _attempt(job: StartedJob, name: str, **how: Any) -> Actor:
    return actor(name, job, programs.attempt(job, name, **how))


def _done(
    scene: Scene, files: tuple[str, ...] = ("x",), uuid: str = J1, named: bool = True, **what: Any
) -> tuple[StartedJob, list[TaskCommit]]:
    """A running job with one committed task for each file."""
    job = scene.start(terms(**what), uuid)
    tasks = enumerate(files)
    return job, [scene.task(job, f"a{n}", f"t{n}", file, named=named) for n, file in tasks]


def _waiting(name: str, uuid: str = J1) -> Actor:
    """An attempt that waits until its job is started."""
    return Actor(name, programs.attempt(None, name, driver="driver"), (uuid,))


def _starts(name: str, what: Any, uuid: str, job_id: str | None = None, **how: Any) -> Actor:
    return Actor(name, programs.drive(what, job_id=job_id, **how), (uuid,), uuid)


# One job ------------------------------------------------------------------------------------------


@configuration(forgetful=True)
def attempts(scene: Scene) -> Actors:
    """A whole job with two attempts of its task, and a recovery in the end."""
    names = ("a0", "a1")
    return (_starts("driver", terms(), J1, attempts=names), *map(_waiting, names))


def _beside_recovery(scene: Scene, *names: str) -> Actors:
    what = terms(marks=False)
    job = scene.start(what)
    drives = actor("driver", job, programs.drive(what, names, job=job))
    return (drives, *(_attempt(job, one) for one in names), _recovery(job))


@configuration(faults=0, forgetful=True)
def attempts_beside_recovery(scene: Scene) -> Actors:
    """Two attempts of a task, and a recovery that takes the job for dead at any moment."""
    return _beside_recovery(scene, "a0", "a1")


@configuration(forgetful=True)
def attempt_beside_recovery(scene: Scene) -> Actors:
    """The same with one attempt, and faults."""
    return _beside_recovery(scene, "a0")


@configuration()
def setup(scene: Scene) -> Actors:
    """A whole job that is aborted, beside a recovery that takes it for dead."""
    drives = _starts("driver", terms(), J1, aborts=True)
    return drives, _waiting("a0"), Actor("recovery", programs.recover(J1), (J1,))


@configuration(faults=0)
def two_drivers(scene: Scene) -> Actors:
    """Two drivers on one job that is committed from a listing, and two attempts of its task."""
    job = scene.start(terms(accept="listing", marks=False))
    scene.task(job, "a0")
    return _commits("d1", job), _commits("d2", job), _attempt(job, "a1")


@configuration()
def rivals(scene: Scene) -> Actors:
    """Two drivers that have the same messages."""
    job, results = _done(scene)
    return _commits("d1", job, results), _commits("d2", job, results)


@configuration(forgetful=True)
def recoveries(scene: Scene) -> Actors:
    """A driver, and a recovery that may begin at any moment."""
    job, results = _done(scene, ("x", "y"))
    return _commits("driver", job, results), _recovery(job)


@configuration()
def other_attempt(scene: Scene) -> Actors:
    """A driver of messages, where another attempt is committed that it did not accept: its input
    was cut short, or it was slower."""
    job = scene.start(terms())
    message = scene.task(job, "a0")
    scene.task(job, "a1", content="cut")
    return _commits("driver", job, [message]), _recovery(job)


@configuration()
def abort(scene: Scene) -> Actors:
    """A driver that commits beside one that aborts."""
    job, results = _done(scene, ("x", "y"))
    aborts = actor("aborter", job, programs.abort(job, undisturbed=False))
    return _commits("driver", job, results), aborts


@configuration()
def opened_by_path(scene: Scene) -> Actors:
    """A process that only closes a file, and one that only says that the driver lives, beside an
    abort."""
    job = scene.start(terms(accept="listing", track="s3"))
    aborts = actor("driver", job, programs.abort(job))
    closes = actor("closer", job, programs.close(job, "a0"))
    return aborts, closes, actor("alive", job, programs.alive(job))


@configuration()
def closed_too_late(scene: Scene) -> Actors:
    """A process that opens a path by name when its attempt was committed, beside the job's commit:
    closing the file never goes well."""
    job = scene.start(terms(accept="listing", track="s3", marks=False))
    scene.task(job, "a0")
    return _commits("driver", job), actor("closer", job, programs.close(job, "a0", "y", "lost"))


@configuration()
def two_handles(scene: Scene) -> Actors:
    """A driver that lists, and two handles on one attempt: one commits it, one aborts it."""
    job = scene.start(terms(accept="listing", track="s3", marks=False))
    commits = actor("commits", job, programs.handle(job, "a0", commits=True))
    commits = scene.goes(commits, lambda sent: sent.verb == "list")  # its only file is closed
    aborts = actor("aborts", job, programs.handle(job, "a0", commits=False))
    return _commits("driver", job), commits, aborts


@configuration(denials=True)
def refused_after_unanswered(scene: Scene) -> Actors:
    """A driver whose writes of the record may be refused when they were not answered: a token
    expires between two tries of the store's adapter."""
    job, results = _done(scene)
    return (_commits("driver", job, results),)


@configuration(faults=0, costly=True)
def costly_aborts(scene: Scene) -> Actors:
    """A job committed from a listing, its attempt and a recovery, on a store where the abort of an
    upload that was completed takes the object."""
    job = scene.start(terms(accept="listing", marks=False))
    return _commits("driver", job), _attempt(job, "a0"), _recovery(job)


@configuration(costly=True)
def costly_recoveries(scene: Scene) -> Actors:
    """A driver and a recovery on such a store."""
    job, results = _done(scene, marks=False)
    return _commits("driver", job, results), _recovery(job)


# Conflict modes and reverts -----------------------------------------------------------------------


def _operator(job: StartedJob) -> Actor:
    return actor("operator", job, programs.revert(job))


def _neighbour(program: Program) -> Actor:
    return Actor("neighbour", program, faulty=False)


@configuration()
def replace(scene: Scene) -> Actors:
    """A job that replaces data, an operator who reverts it, another program that rewrites a key."""
    scene.object("old")
    scene.object("_SUCCESS", b"")
    job, results = _done(scene, mode="replace")
    neighbour = _neighbour(programs.overwrite("old"))
    return _commits("driver", job, results), _operator(job), neighbour


@configuration()
def revert(scene: Scene) -> Actors:
    """A job committed from a listing, its slow attempt, and an operator who reverts it."""
    job = scene.start(terms(accept="listing"))
    scene.task(job, "a0", "t0", "y")
    return _commits("driver", job), _operator(job), _attempt(job, "a1")


@configuration(promised=Promised(jobs=(J1,), contested=True, overwrites=False))
def conflict(scene: Scene) -> Actors:
    """A job of mode `fail`, and another program that writes one of its two keys."""
    job, results = _done(scene, ("x", "y"), named=False, mode="fail")
    return _commits("driver", job, results), _neighbour(programs.overwrite("y"))


def _starting(
    modes: tuple[str, str], files: tuple[tuple[str, ...], tuple[str, ...]], old: str, marks: bool,
    scene: Scene,
) -> Actors:  # fmt: skip
    """Two jobs that start at once, whose tasks are done: one for each of their files."""
    if old:
        scene.object(old)
    actors: Actors = ()
    for uuid, mode, mine in zip(BOTH, modes, files, strict=True):
        job = scene.start(terms(marks=marks), uuid)  # a task does not ask for the mode
        tasks = enumerate(mine)
        results = [scene.task(job, f"a{uuid[0]}{n}", f"t{n}", file) for n, file in tasks]
        scene.forget(job)
        program = programs.start_and_commit(terms(mode, marks=marks), results)
        actors = (*actors, Actor(f"d{uuid[0]}", program, (uuid,), uuid))
    return actors


FAIL, REPLACE = "fail_partitions", "replace_partitions"
IN_P = (("p/x",), ("p/x",))
STARTING: dict[str, tuple[int, tuple[Any, ...]]] = {
    # Of whole destinations.
    "two fail jobs": (1, (("fail", "fail"), (("x",), ("x",)), "", True)),
    "two replace jobs": (1, (("replace", "replace"), (("x",), ("x",)), "old", True)),
    "replace beside replace partitions": (
        1, (("replace", REPLACE), (("x",), ("x",)), "old", True),
    ),
    # Of the same partition; either may begin and end while the other plans.
    "two partition replaces": (1, ((REPLACE, REPLACE), IN_P, "p/old", False)),
    "two partition fails": (1, ((FAIL, FAIL), IN_P, "", False)),
    "partition fail and replace": (1, ((FAIL, REPLACE), IN_P, "", False)),
    "partition fail of old": (0, ((FAIL, REPLACE), IN_P, "p/old", False)),
    # One replaces a partition, the other that one and another; and where they differ.
    "overlapping partitions": (0, ((REPLACE, REPLACE), (("p/x", "q/x"), ("q/x",)), "p/old", False)),
    "other partitions": (1, ((REPLACE, FAIL), (("p/x",), ("q/x",)), "p/old", False)),
}  # fmt: skip
"""Two jobs that start at once: with how many faults, and `_starting`'s arguments."""
for _name, (_faults, _what) in STARTING.items():
    # A job that yields to the other leaves its tasks' work, which was there before it: where
    # nobody comes in the end, no I4.
    _ends = BOTH if "partition" in _what[0][0] else ()
    configuration(
        name=_name, faults=_faults, ends=_ends, promised=Promised(jobs=_ends, alone=BOTH)
    )(partial(_starting, *_what))


@configuration()
def partition_rivals(scene: Scene) -> Actors:
    """Two drivers of one job by partition that have the same messages."""
    scene.object("p/old")
    job, results = _done(scene, ("p/x",), mode="replace_partitions", marks=False)
    return _commits("d1", job, results), _commits("d2", job, results)


def _append_beside(
    scene: Scene, mode: str, replaced: tuple[str, ...], appended: tuple[str, ...], old: str = ""
) -> Actors:
    """A job that replaces data, and an append whose tasks are done."""
    if old:
        scene.object(old)
    one, replaces = _done(scene, replaced, J1, mode=mode, marks=False)
    two, appends = _done(scene, appended, J2, marks=False)
    return _commits("replace", one, replaces), _commits("append", two, appends)


@configuration(ends=BOTH)
def append_beside_replace(scene: Scene) -> Actors:
    """A job that replaces the whole destination, and an append of two files that may publish, and
    end, at any moment of it."""
    return _append_beside(scene, "replace", ("z",), ("x", "y"), "z-old")


@configuration(ends=BOTH)
def late_attempt_beside_replace(scene: Scene) -> Actors:
    """The same with an attempt of the append that was accepted, and finds out that it is late."""
    scene.object("z-old")
    one, replaces = _done(scene, ("z",), J1, mode="replace", marks=False)
    two = scene.start(terms(marks=False), J2)
    before, stored = scene.store, two.paths.pendingset("a0").removeprefix(DEST.prefix)
    result = scene.task(two, "a0")
    scene.store = before
    late = scene.goes(
        _attempt(two, "a0"), lambda sent: sent.verb == "head" and stored in scene.store
    )
    return _commits("replace", one, replaces), _commits("append", two, [result]), late


@configuration(faults=0, ends=BOTH)
def append_beside_partition_replace(scene: Scene) -> Actors:
    """A job that replaces two partitions, and an append that writes into both."""
    both = ("p/x", "q/y")
    return _append_beside(scene, "replace_partitions", both, both, "p/x-old")


@configuration(ends=("given",), promised=Promised(jobs=(J1,)))
def withdrawn(scene: Scene) -> Actors:
    """A `fail` job of a given id that finds data, and an attempt that attached to it by name."""
    scene.object("old")
    drives = _starts("driver", terms("fail"), J1, "given")
    return drives, Actor("a0", programs.attempt(None, "a0", attached="given"), (J1,))


# Neighbours ---------------------------------------------------------------------------------------


def _two_markers(scene: Scene, clock_stands: bool) -> Actors:
    one, first = _done(scene, ("x",), J1)
    two = scene.start(terms(), J2)
    other = scene.task(two, "a0", "t0", "x")
    scene.forget(two)
    order = {GHOST + "order": ((J1, "running"),), GHOST + "clock stands": clock_stands}
    scene.store = {**scene.store, **order}
    begins = Actor("d2", programs.start_and_commit(terms(), [other]), (J2,), J2)
    return _commits("d1", one, first), begins


@configuration(ends=BOTH)
def two_markers(scene: Scene) -> Actors:
    """A job beside one that is started before or after it completes; a second passes with each."""
    return _two_markers(scene, clock_stands=False)


@configuration(ends=BOTH)
def two_markers_in_a_second(scene: Scene) -> Actors:
    """The same within one second."""
    return _two_markers(scene, clock_stands=True)


@configuration()
def foreign_upload(scene: Scene) -> Actors:
    """Another program uploads into the directory while a job is swept."""
    job, results = _done(scene, named=False)
    return _commits("driver", job, results), _neighbour(programs.upload("z"))


# Its uploads have names that nobody can attribute: I4 is not promised of them.
@configuration(faults=0, promised=Promised(jobs=()), ends=())
def adoption(scene: Scene) -> Actors:
    """A job whose files have names of the user's is aborted; a zombie of it; an operator who takes
    what lies there for a Hadoop job's."""
    job = scene.start(terms(accept="listing"))
    zombie = programs.attempt(job, "zombie", content="cut", named=False)
    return (
        actor("driver", job, programs.abort(job)),
        actor("zombie", job, zombie, faulty=False),
        Actor("adopter", programs.adopt(job.id), (job.uuid, "adopted"), faulty=False),
    )


# One id, two runs ---------------------------------------------------------------------------------

RUNS = Promised(jobs=BOTH)


@configuration(ends=("given",), promised=RUNS)
def id_used_again(scene: Scene) -> Actors:
    """An id is given to a second run when the first is aborted and its closed record was taken away
    by an operator who was wrong: a zombie of it lives."""
    what = terms(accept="listing")
    first = scene.start(what, J1, "given")
    return (
        actor("abort", first, programs.abort(first, forgets=True)),
        _attempt(first, "zombie", content="cut"),
        _starts("driver", what, J2, "given"),
    )


@configuration(ends=("given",), promised=RUNS)
def id_swept_twice(scene: Scene) -> Actors:
    """An aborted run of a given id is swept by two; then the id is given to a second run, whose
    task has the name that the first one's had."""
    what = terms(accept="listing")
    first = scene.start(what, J1, "given")
    scene.task(first, "a0")
    sweeps = tuple(actor(name, first, programs.abort(first)) for name in ("s1", "s2"))
    drives = _starts("driver", what, J2, "given", attempts=("a0",))
    return (*sweeps, drives, _waiting("a0", J2))


# Streams ------------------------------------------------------------------------------------------


def _stream(scene: Scene) -> Actors:
    actors: Actors = ()
    for number, uuid in enumerate(BOTH, 1):
        job = scene.start(terms(marks=False), uuid)
        message = scene.task(job, f"a{number}")
        scene.forget(job)
        run = programs.start_and_commit(terms(marks=False), [message], batch=programs.BATCH)
        actors = (*actors, Actor(f"run{number}", run, BOTH, uuid))
    return actors


ONCE = Promised(jobs=BOTH, once=BOTH)


@configuration(promised=ONCE, ends=BOTH)
def stream(scene: Scene) -> Actors:
    """Two runs of one batch of a streaming query."""
    return _stream(scene)


@configuration(faults=0, promised=ONCE, ends=BOTH)
def stream_recovered(scene: Scene) -> Actors:
    """The same, and a recovery of the first run beside them."""
    return (*_stream(scene), Actor("recovery", programs.recover(J1), (J1,)))


BOTH_WAYS = ("d1 committed", "d2 committed", "d1 conflict", "d2 conflict")
REACHED: dict[str, tuple[str, ...]] = {
    "attempts beside recovery": ("a0 late", "a1 late", "recovery aborted", "recovery committed"),
    "attempt beside recovery": ("a0 late", "recovery aborted", "recovery committed"),
    "rivals": ("d1 committed", "d2 committed", "delete_one plan"),
    "two fail jobs": BOTH_WAYS,
    "replace beside replace partitions": (*BOTH_WAYS, "delete_one data"),
    "partition fail and replace": (*BOTH_WAYS, "delete_one data"),
    "partition fail of old": ("d1 conflict", "d2 committed", "d2 conflict", "delete_one data"),
    "overlapping partitions": (*BOTH_WAYS, "delete_one data"),
    "other partitions": ("d1 committed", "d2 committed", "delete_one data"),
    "append beside partition replace": ("append committed", "replace committed", "delete_one data"),
}
"""What the configurations are for in which no rule is missed: what an actor must be told somewhere,
and requests that must be sent. One that has become idle would break nothing."""
