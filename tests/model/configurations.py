"""What is searched: small separate configurations, each around one part of the protocol.

Each is made for a set of rules to leave out; with none left out it must be without violation. Most
start from a store where the job is running and its tasks are done: what leads there is searched in
``attempts`` and ``setup``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tests.model.actors.driver import abort as abort_job
from tests.model.actors.driver import driver, start_and_commit
from tests.model.actors.job import LEDGER, Accepted, Job
from tests.model.actors.others import adopter, batch, operator, overwriter, recovery, uploader
from tests.model.actors.task import aborting, alive, attached, attempt, closer, committing, late
from tests.model.promises import Promised
from tests.model.scenery import (
    Entries,
    actor,
    committer,
    file_closed,
    in_the_end,
    objects,
    started,
    task_done,
    tasks_done,
)
from tests.model.search import Actor, Configuration
from tests.model.store import GHOST, SUCCESS, Data, Ledger, Marker

Without = frozenset[str]
Actors = tuple[Actor, ...]
Two = tuple[tuple[Job, Job], Actors, Entries]

CONFIGURATIONS: dict[str, Callable[[Without], Configuration]] = {}
OLD = Data("", "", "old")


def configuration(
    *, faults: int = 1, promised: Promised | None = None, ends: bool = True, two: bool = False,
    forgetful: bool = False, costly: bool = False, denials: bool = False, **terms: Any,
) -> Callable[[Callable[[Any], tuple[Any, ...]]], None]:  # fmt: skip
    """Enter a configuration of one job under its function's name. The function gives the actors
    around the job, and the store to begin with; its recovery and a cleanup come in the end, if it
    ``ends``. ``terms``: of the job. ``two``: of two jobs, which the function makes, and gives
    first."""

    def enter(function: Callable[[Any], tuple[Any, ...]]) -> None:
        name = function.__name__.replace("_", " ")

        def made(without: Without) -> Configuration:
            job = Job(**terms, without=without)
            jobs, actors, store = function(without) if two else ((job,), *function(job))
            return Configuration(
                name, (*actors, *(in_the_end(*jobs) if ends else ())), store, faults,
                forgetful=forgetful, costly=costly, denials=denials,
                promised=promised or Promised(jobs=tuple(job.uuid for job in jobs)),
            )  # fmt: skip

        CONFIGURATIONS[name] = made

    return enter


def of_two(**how: Any) -> Callable[[Callable[[Without], Two]], None]:
    """The same of two jobs, which the function makes."""
    return configuration(two=True, **how)


def _recovering(job: Job) -> Actor:
    return actor("recovery", job, partial(recovery, job, "recovery"))


def _attempt(job: Job, name: str, **how: Any) -> Actor:
    return actor(name, job, partial(attempt, job, name, **how))


def _lists(job: Job, name: str = "driver") -> Actor:
    """A driver that commits from a listing."""
    return committer(name, job, ())


# One job ------------------------------------------------------------------------------------------


@configuration(forgetful=True)
def attempts(job: Job) -> tuple[Actors, Entries]:
    """A whole job with two attempts of its task, and a recovery in the end."""
    names = ("a0", "a1")
    drives = actor("driver", job, partial(driver, job, "driver", (names,)))
    return (drives, *(_attempt(job, name, driver="driver") for name in names)), {}


def _beside_recovery(job: Job, *names: str) -> tuple[Actors, Entries]:
    drives = actor("driver", job, partial(driver, job, "driver", (names,), starts=False))
    return (drives, *(_attempt(job, one) for one in names), _recovering(job)), started(job)


@configuration(faults=0, forgetful=True, marks=False)
def attempts_beside_recovery(job: Job) -> tuple[Actors, Entries]:
    """Two attempts of a task, and a recovery that takes the job for dead at any moment."""
    return _beside_recovery(job, "a0", "a1")


@configuration(forgetful=True, marks=False)
def attempt_beside_recovery(job: Job) -> tuple[Actors, Entries]:
    """The same with one attempt, and faults."""
    return _beside_recovery(job, "a0")


@configuration()
def setup(job: Job) -> tuple[Actors, Entries]:
    """A whole job that is aborted, beside a recovery that takes it for dead."""
    drives = actor("driver", job, partial(driver, job, "driver", (), ends="abort"))
    return (drives, _attempt(job, "a0", driver="driver"), _recovering(job)), {}


@configuration(faults=0, accept="listing", marks=False)
def two_drivers(job: Job) -> tuple[Actors, Entries]:
    """Two drivers on one job that is committed from a listing, and two attempts of its task."""
    done, _ = task_done(job, "a0")
    return (_lists(job, "d1"), _lists(job, "d2"), _attempt(job, "a1")), {**started(job), **done}


@configuration()
def rivals(job: Job) -> tuple[Actors, Entries]:
    """Two drivers that have the same messages."""
    store, accepted = tasks_done(job)
    return (committer("d1", job, accepted), committer("d2", job, accepted)), store


@configuration(forgetful=True)
def recoveries(job: Job) -> tuple[Actors, Entries]:
    """A driver, and a recovery that may begin at any moment."""
    store, accepted = tasks_done(job, ("x", "y"))
    return (committer("driver", job, accepted), _recovering(job)), store


@configuration()
def other_attempt(job: Job) -> tuple[Actors, Entries]:
    """A driver of messages, where another attempt is committed that it did not accept: its input
    was cut short, or it was slower."""
    done, message = task_done(job, "a0")
    other, _ = task_done(job, "a1", content="cut")
    actors = (committer("driver", job, (message,)), _recovering(job))
    return actors, {**started(job), **done, **other}


@configuration()
def abort(job: Job) -> tuple[Actors, Entries]:
    """A driver that commits beside one that aborts."""
    store, accepted = tasks_done(job, ("x", "y"))
    aborts = actor("aborter", job, partial(abort_job, job, "aborter", may_remove=False))
    return (committer("driver", job, accepted), aborts), store


@configuration(accept="listing")
def opened_by_path(job: Job) -> tuple[Actors, Entries]:
    """A process that only closes a file, and one that only says that the driver lives, beside an
    abort."""
    aborts = actor("driver", job, partial(abort_job, job, "driver"))
    closes = actor("closer", job, partial(closer, job, "a0"))
    return (aborts, closes, actor("alive", job, partial(alive, job))), started(job)


@configuration(accept="listing", marks=False)
def closed_too_late(job: Job) -> tuple[Actors, Entries]:
    """A process that opens a path by name when its attempt was committed, beside the job's commit:
    closing the file never goes well."""
    done, _ = task_done(job, "a0")
    closes = actor("closer", job, partial(closer, job, "a0", "y", "lost"))
    return (_lists(job), closes), {**started(job), **done}


@configuration(accept="listing", marks=False)
def two_handles(job: Job) -> tuple[Actors, Entries]:
    """A driver that lists, and two handles on one attempt: one commits it, one aborts it."""
    store, file = file_closed(job)
    commits = actor("commits", job, partial(committing, job, "a0", "t", (file,)))
    aborts = actor("aborts", job, partial(aborting, job, "a0", "t"))
    return (_lists(job), commits, aborts), {**started(job), **store}


@configuration(denials=True)
def refused_after_unanswered(job: Job) -> tuple[Actors, Entries]:
    """A driver whose writes of the record may be refused when they were not answered: a token
    expires between two tries of the store's adapter."""
    store, accepted = tasks_done(job)
    return (committer("driver", job, accepted),), store


@configuration(faults=0, costly=True, accept="listing", marks=False)
def costly_aborts(job: Job) -> tuple[Actors, Entries]:
    """A job committed from a listing, its attempt and a recovery, on a store where the abort of an
    upload that was completed takes the object."""
    return (_lists(job), _attempt(job, "a0"), _recovering(job)), started(job)


@configuration(costly=True, marks=False)
def costly_recoveries(job: Job) -> tuple[Actors, Entries]:
    """A driver and a recovery on such a store."""
    store, accepted = tasks_done(job)
    return (committer("driver", job, accepted), _recovering(job)), store


# Conflict modes and reverts -----------------------------------------------------------------------


def _operator(job: Job) -> Actor:
    return actor("operator", job, partial(operator, job, "operator"))


def _neighbour(program: Callable[..., Any], key: str) -> Actor:
    return Actor("neighbour", partial(program, key), faulty=False)


@configuration(mode="replace")
def replace(job: Job) -> tuple[Actors, Entries]:
    """A job that replaces data, an operator who reverts it, another program that rewrites a key."""
    store, accepted = tasks_done(job)
    old = objects({"old": OLD, SUCCESS: Marker("", 0, "old")})
    drives = committer("driver", job, accepted)
    return (drives, _operator(job), _neighbour(overwriter, "old")), {**store, **old}


@configuration(accept="listing")
def revert(job: Job) -> tuple[Actors, Entries]:
    """A job committed from a listing, its slow attempt, and an operator who reverts it."""
    done, _ = task_done(job, "a0", "t0", "y")
    return (_lists(job), _operator(job), _attempt(job, "a1")), {**started(job), **done}


@configuration(promised=Promised(contested=True, overwrites=False), mode="fail", named=False)
def conflict(job: Job) -> tuple[Actors, Entries]:
    """A job of mode `fail`, and another program that writes one of its two keys."""
    store, accepted = tasks_done(job, ("x", "y"))
    return (committer("driver", job, accepted), _neighbour(overwriter, "y")), store


def _jobs(
    without: Without, modes: tuple[str, str], marks: bool = False, **terms: Any
) -> tuple[Job, Job]:
    one, two = (
        Job(name, name, mode=mode, marks=marks, without=without, **terms)
        for name, mode in zip(("j1", "j2"), modes, strict=True)
    )
    return one, two


UUIDS = ("j1", "j2")
ALONE = Promised(jobs=(), alone=UUIDS)
"""A job that yields to the other leaves the tasks' work, which was there before it: no I4 here."""


def _starting(
    jobs: tuple[Job, Job],
    files: tuple[tuple[str, ...], tuple[str, ...]] = (("x",), ("x",)),
    old: str = "",
) -> Two:
    """Two jobs that start at once, whose tasks are done: one for each of their files."""
    store: Entries = objects({old: OLD}) if old else {}
    actors: Actors = ()
    for job, mine in zip(jobs, files, strict=True):
        messages: Accepted = ()
        for number, file in enumerate(mine):
            done, message = task_done(job, f"a{number}", f"t{number}", file)
            store |= done
            messages = (*messages, message)
        program = partial(start_and_commit, job, messages)
        actors = (*actors, actor(f"d{job.id[1:]}", job, program))
    return jobs, actors, store


@of_two(promised=ALONE, ends=False)
def two_fail_jobs(without: Without) -> Two:
    """Two jobs of mode `fail` that start at once."""
    return _starting(_jobs(without, ("fail", "fail"), marks=True))


@of_two(promised=ALONE, ends=False)
def two_replace_jobs(without: Without) -> Two:
    """Two jobs of mode `replace` that start at once."""
    return _starting(_jobs(without, ("replace", "replace"), marks=True), old="old")


@of_two(promised=ALONE, ends=False)
def replace_beside_replace_partitions(without: Without) -> Two:
    """One that replaces the whole destination, and one that replaces a partition of it."""
    return _starting(_jobs(without, ("replace", "replace_partitions"), marks=True), old="old")


IN_P = (("p/x",), ("p/x",))
BY_PARTITION = Promised(jobs=UUIDS, alone=UUIDS)


@of_two(promised=BY_PARTITION)
def two_partition_replaces(without: Without) -> Two:
    """Two jobs that replace the same partition; either may begin and end while the other plans."""
    modes = ("replace_partitions", "replace_partitions")
    return _starting(_jobs(without, modes), IN_P, "p/old")


@of_two(promised=BY_PARTITION)
def two_partition_fails(without: Without) -> Two:
    """Two jobs that want the same partition empty."""
    return _starting(_jobs(without, ("fail_partitions", "fail_partitions")), IN_P)


@of_two(promised=BY_PARTITION)
def partition_fail_and_replace(without: Without) -> Two:
    """A job that wants a partition empty, and one that replaces it."""
    return _starting(_jobs(without, ("fail_partitions", "replace_partitions")), IN_P)


@of_two(faults=0, promised=BY_PARTITION)
def partition_fail_of_old(without: Without) -> Two:
    """The same where the partition holds data."""
    return _starting(_jobs(without, ("fail_partitions", "replace_partitions")), IN_P, "p/old")


@of_two(faults=0, promised=BY_PARTITION)
def overlapping_partitions(without: Without) -> Two:
    """Of two jobs one replaces a partition, the other that one and another."""
    jobs = _jobs(without, ("replace_partitions", "replace_partitions"))
    return _starting(jobs, (("p/x", "q/x"), ("q/x",)), "p/old")


@of_two(promised=BY_PARTITION)
def other_partitions(without: Without) -> Two:
    """Two jobs whose partitions differ."""
    jobs = _jobs(without, ("replace_partitions", "fail_partitions"))
    return _starting(jobs, (("p/x",), ("q/x",)), "p/old")


@configuration(mode="replace_partitions", marks=False)
def partition_rivals(job: Job) -> tuple[Actors, Entries]:
    """Two drivers of one job by partition that have the same messages."""
    store, accepted = tasks_done(job, ("p/x",))
    both = committer("d1", job, accepted), committer("d2", job, accepted)
    return both, {**store, **objects({"p/old": OLD})}


def _append_beside(
    without: Without, mode: str, replaced: tuple[str, ...], appended: tuple[str, ...], old: str = ""
) -> Two:
    """A job that replaces data, and an append whose tasks are done."""
    replacing, append = jobs = _jobs(without, (mode, "append"))
    store, one = tasks_done(replacing, replaced)
    more, two = tasks_done(append, appended)
    actors = committer("replace", replacing, one), committer("append", append, two)
    return jobs, actors, {**store, **more, **(objects({old: OLD}) if old else {})}


@of_two()
def append_beside_replace(without: Without) -> Two:
    """A job that replaces the whole destination, and an append of two files that may publish, and
    end, at any moment of it."""
    return _append_beside(without, "replace", ("z",), ("x", "y"), "z-old")


@of_two()
def late_attempt_beside_replace(without: Without) -> Two:
    """The same with an attempt of the append that was accepted, and finds out that it is late."""
    jobs, actors, store = _append_beside(without, "replace", ("z",), ("x",))
    append = jobs[1]
    _, stored = task_done(append, "a0", "t0", "x")
    return jobs, (*actors, actor("late", append, partial(late, append, "a0", stored))), store


@of_two(faults=0)
def append_beside_partition_replace(without: Without) -> Two:
    """A job that replaces two partitions, and an append that writes into both."""
    both = ("p/x", "q/y")
    return _append_beside(without, "replace_partitions", both, both, "p/x-old")


@configuration(mode="fail", given=True)
def withdrawn(job: Job) -> tuple[Actors, Entries]:
    """A `fail` job of a given id that finds data, and an attempt that attached to it by name."""
    drives = actor("driver", job, partial(driver, job, "driver", ()))
    return (drives, actor("a0", job, partial(attached, job, "a0"))), objects({"old": OLD})


# Neighbours ---------------------------------------------------------------------------------------


def _two_markers(without: Without, clock_stands: bool) -> Two:
    first, second = jobs = _jobs(without, ("append", "append"), marks=True)
    store, one = tasks_done(first)
    done, other = task_done(second)
    order = {GHOST + "order": (("j1", "running"),), GHOST + "clock stands": clock_stands}
    begins = actor("d2", second, partial(start_and_commit, second, (other,)))
    return jobs, (committer("d1", first, one), begins), {**store, **done, **order}


@of_two()
def two_markers(without: Without) -> Two:
    """A job beside one that is started before or after it completes; a second passes with each."""
    return _two_markers(without, clock_stands=False)


@of_two()
def two_markers_in_a_second(without: Without) -> Two:
    """The same within one second."""
    return _two_markers(without, clock_stands=True)


@configuration(named=False)
def foreign_upload(job: Job) -> tuple[Actors, Entries]:
    """Another program uploads into the directory while a job is swept."""
    store, accepted = tasks_done(job)
    return (committer("driver", job, accepted), _neighbour(uploader, "z")), store


# Its uploads have names that nobody can attribute: I4 is not promised of them.
@configuration(faults=0, promised=Promised(jobs=()), ends=False, accept="listing", named=False)
def adoption(job: Job) -> tuple[Actors, Entries]:
    """A job whose files have names of the user's is aborted; a zombie of it; an operator who takes
    what lies there for a Hadoop job's."""
    adopts = partial(adopter, job, "adopter", job.without)
    zombie = partial(attempt, job, "zombie", content="cut")
    actors = (
        actor("driver", job, partial(abort_job, job, "driver")),
        actor("zombie", job, zombie, faulty=False),
        Actor("adopter", adopts, (job.uuid, "adopted"), faulty=False),
    )
    return actors, started(job)


# One id, two runs ---------------------------------------------------------------------------------


def _runs(without: Without) -> tuple[Job, Job]:
    terms: dict[str, Any] = {"accept": "listing", "given": True, "without": without}
    return Job("j", "run1", **terms), Job("j", "run2", **terms)


@of_two()
def id_used_again(without: Without) -> Two:
    """An id is given to a second run when the first is aborted and its closed record was taken away
    by an operator who was wrong: a zombie of it lives."""
    first, second = jobs = _runs(without | {"a given id stays closed"})
    actors = (
        actor("abort", first, partial(abort_job, first, "abort")),
        _attempt(first, "zombie", content="cut"),
        actor("driver", second, partial(driver, second, "driver", ())),
    )
    return jobs, actors, started(first)


@of_two()
def id_swept_twice(without: Without) -> Two:
    """An aborted run of a given id is swept by two; then the id is given to a second run, whose
    task has the name that the first one's had."""
    first, second = jobs = _runs(without)
    done, _ = task_done(first, "a0")
    gone = not first.keeps("a given id stays closed")
    sweeps = (
        actor(name, first, partial(abort_job, first, name, may_remove=gone))
        for name in ("s1", "s2")
    )
    drives = actor("driver", second, partial(driver, second, "driver", (("a0",),)))
    actors = (*sweeps, drives, _attempt(second, "a0", driver="driver"))
    return jobs, actors, {**started(first), **done}


# Streams ------------------------------------------------------------------------------------------


def _stream(without: Without) -> Two:
    first, second = jobs = _jobs(without, ("append", "append"), batch=1)
    store: Entries = objects({LEDGER: Ledger(0)})
    actors: Actors = ()
    for number, (job, other) in enumerate(((first, second), (second, first)), 1):
        done, message = task_done(job)
        store |= done
        run = f"run{number}"
        actors = (*actors, Actor(run, partial(batch, job, run, (other,), (message,)), UUIDS))
    return jobs, actors, store


ONCE = Promised(jobs=UUIDS, once=UUIDS)


@of_two(promised=ONCE)
def stream(without: Without) -> Two:
    """Two runs of one batch of a streaming query."""
    return _stream(without)


@of_two(faults=0, promised=ONCE)
def stream_recovered(without: Without) -> Two:
    """The same, and a recovery of the first run beside them."""
    jobs, actors, store = _stream(without)
    return jobs, (*actors, _recovering(jobs[0])), store
