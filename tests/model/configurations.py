"""What is searched: small separate configurations, each around one part of the protocol.

Each is made for a set of rules to leave out; with none left out it must be without violation. Most
start from a store where the job is running and its tasks are done: what leads there is searched in
``attempts`` and ``setup``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.model.actors.driver import abort as abort_job
from tests.model.actors.driver import commit, driver, start_and_commit
from tests.model.actors.job import LEDGER, Accepted, Job
from tests.model.actors.others import adopter, batch, operator, overwriter, recovery, uploader
from tests.model.actors.shared import aborting, committing
from tests.model.actors.task import alive, attached, attempt, closer, late
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
from tests.model.store import (
    GHOST,
    SUCCESS,
    Data,
    Ledger,
    Marker,
)

Without = frozenset[str]

CONFIGURATIONS: dict[str, Callable[[Without], Configuration]] = {}


def configuration(
    function: Callable[[Without], Configuration],
) -> Callable[[Without], Configuration]:
    """Enter a configuration under its function's name."""
    CONFIGURATIONS[function.__name__.replace("_", " ")] = function
    return function


# One job ------------------------------------------------------------------------------------------


@configuration
def attempts(without: Without) -> Configuration:
    """A whole job with two attempts of its task, and a recovery in the end."""
    job = Job(without=without)
    return Configuration(
        "attempts",
        (
            actor("driver", job, partial(driver, job, "driver", (("a0", "a1"),))),
            *(
                actor(name, job, partial(attempt, job, name, driver="driver"))
                for name in ("a0", "a1")
            ),
            *in_the_end(job),
        ),
        forgetful=True,
    )


@configuration
def attempts_beside_recovery(without: Without) -> Configuration:
    """Two attempts of a task, and a recovery that takes the job for dead at any moment."""
    return _beside_recovery("attempts beside recovery", ("a0", "a1"), 0, without)


@configuration
def attempt_beside_recovery(without: Without) -> Configuration:
    """The same with one attempt, and faults."""
    return _beside_recovery("attempt beside recovery", ("a0",), 1, without)


def _beside_recovery(
    name: str, names: tuple[str, ...], faults: int, without: Without
) -> Configuration:
    job = Job(marks=False, without=without)
    return Configuration(
        name,
        (
            actor("driver", job, partial(driver, job, "driver", (names,), starts=False)),
            *(actor(one, job, partial(attempt, job, one)) for one in names),
            actor("recovery", job, partial(recovery, job, "recovery")),
            *in_the_end(job),
        ),
        started(job),
        faults=faults,
        forgetful=True,
    )


@configuration
def setup(without: Without) -> Configuration:
    """A whole job that is aborted, beside a recovery that takes it for dead."""
    job = Job(without=without)
    return Configuration(
        "setup",
        (
            actor("driver", job, partial(driver, job, "driver", (), ends="abort")),
            actor("a0", job, partial(attempt, job, "a0", driver="driver")),
            actor("recovery", job, partial(recovery, job, "recovery")),
            *in_the_end(job),
        ),
    )


@configuration
def two_drivers(without: Without) -> Configuration:
    """Two drivers on one job that is committed from a listing, and two attempts of its task."""
    job = Job(accept="listing", marks=False, without=without)
    done, _ = task_done(job, "a0")
    return Configuration(
        "two drivers",
        (
            *(actor(name, job, partial(commit, job, name, ())) for name in ("d1", "d2")),
            actor("a1", job, partial(attempt, job, "a1")),
            *in_the_end(job),
        ),
        {**started(job), **done},
        faults=0,
    )


@configuration
def rivals(without: Without) -> Configuration:
    """Two drivers that have the same messages."""
    job = Job(without=without)
    store, accepted = tasks_done(job)
    return Configuration(
        "rivals",
        (committer("d1", job, accepted), committer("d2", job, accepted), *in_the_end(job)),
        store,
    )


@configuration
def recoveries(without: Without) -> Configuration:
    """A driver, and a recovery that may begin at any moment."""
    job = Job(without=without)
    store, accepted = tasks_done(job, ("x", "y"))
    return Configuration(
        "recoveries",
        (
            committer("driver", job, accepted),
            actor("recovery", job, partial(recovery, job, "recovery")),
            *in_the_end(job),
        ),
        store,
        forgetful=True,
    )


@configuration
def other_attempt(without: Without) -> Configuration:
    """A driver of messages, where another attempt is committed that it did not accept: its input
    was cut short, or it was slower."""
    job = Job(without=without)
    done, message = task_done(job, "a0")
    other, _ = task_done(job, "a1", content="cut")
    return Configuration(
        "other attempt",
        (
            committer("driver", job, (message,)),
            actor("recovery", job, partial(recovery, job, "recovery")),
            *in_the_end(job),
        ),
        {**started(job), **done, **other},
    )


@configuration
def abort(without: Without) -> Configuration:
    """A driver that commits beside one that aborts."""
    job = Job(without=without)
    store, accepted = tasks_done(job, ("x", "y"))
    return Configuration(
        "abort",
        (
            committer("driver", job, accepted),
            actor("aborter", job, partial(abort_job, job, "aborter", may_remove=False)),
            *in_the_end(job),
        ),
        store,
    )


@configuration
def opened_by_path(without: Without) -> Configuration:
    """A process that only closes a file, and one that only says that the driver lives, beside an
    abort."""
    job = Job(accept="listing", without=without)
    return Configuration(
        "opened by path",
        (
            actor("driver", job, partial(abort_job, job, "driver")),
            actor("closer", job, partial(closer, job, "a0")),
            actor("alive", job, partial(alive, job)),
            *in_the_end(job),
        ),
        started(job),
    )


@configuration
def closed_too_late(without: Without) -> Configuration:
    """A process that opens a path by name when its attempt was committed, beside the job's commit:
    closing the file never goes well."""
    job = Job(accept="listing", marks=False, without=without)
    done, _ = task_done(job, "a0")
    return Configuration(
        "closed too late",
        (
            actor("driver", job, partial(commit, job, "driver", ())),
            actor("closer", job, partial(closer, job, "a0", "y", "lost")),
            *in_the_end(job),
        ),
        {**started(job), **done},
    )


@configuration
def two_handles(without: Without) -> Configuration:
    """A driver that lists, and two handles on one attempt: one commits it, one aborts it."""
    job = Job(accept="listing", marks=False, without=without)
    store, file = file_closed(job)
    return Configuration(
        "two handles",
        (
            actor("driver", job, partial(commit, job, "driver", ())),
            actor("commits", job, partial(committing, job, "a0", "t", (file,))),
            actor("aborts", job, partial(aborting, job, "a0", "t")),
            *in_the_end(job),
        ),
        {**started(job), **store},
    )


@configuration
def refused_after_unanswered(without: Without) -> Configuration:
    """A driver whose writes of the record may be refused when they were not answered: a token
    expires between two tries of the store's adapter."""
    job = Job(without=without)
    store, accepted = tasks_done(job)
    return Configuration(
        "refused after unanswered",
        (
            committer("driver", job, accepted),
            *in_the_end(job),
        ),
        store,
        denials=True,
    )


@configuration
def costly_aborts(without: Without) -> Configuration:
    """A job committed from a listing, its attempt and a recovery, on a store where the abort of an
    upload that was completed takes the object."""
    job = Job(accept="listing", marks=False, without=without)
    return Configuration(
        "costly aborts",
        (
            actor("driver", job, partial(commit, job, "driver", ())),
            actor("a0", job, partial(attempt, job, "a0")),
            actor("recovery", job, partial(recovery, job, "recovery")),
            *in_the_end(job),
        ),
        started(job),
        faults=0,
        costly=True,
    )


@configuration
def costly_recoveries(without: Without) -> Configuration:
    """A driver and a recovery on such a store."""
    job = Job(marks=False, without=without)
    store, accepted = tasks_done(job)
    return Configuration(
        "costly recoveries",
        (
            committer("driver", job, accepted),
            actor("recovery", job, partial(recovery, job, "recovery")),
            *in_the_end(job),
        ),
        store,
        costly=True,
    )


# Conflict modes and reverts -----------------------------------------------------------------------


@configuration
def replace(without: Without) -> Configuration:
    """A job that replaces data, an operator who reverts it, another program that rewrites a key."""
    job = Job(mode="replace", without=without)
    store, accepted = tasks_done(job)
    old = objects({"old": Data("", "", "old"), SUCCESS: Marker("", 0, "old")})
    return Configuration(
        "replace",
        (
            committer("driver", job, accepted),
            actor("operator", job, partial(operator, job, "operator")),
            Actor("neighbour", partial(overwriter, "old"), faulty=False),
            *in_the_end(job),
        ),
        {**store, **old},
    )


@configuration
def revert(without: Without) -> Configuration:
    """A job committed from a listing, its slow attempt, and an operator who reverts it."""
    job = Job(accept="listing", without=without)
    done, _ = task_done(job, "a0", "t0", "y")
    return Configuration(
        "revert",
        (
            actor("driver", job, partial(commit, job, "driver", ())),
            actor("operator", job, partial(operator, job, "operator")),
            actor("a1", job, partial(attempt, job, "a1")),
            *in_the_end(job),
        ),
        {**started(job), **done},
    )


@configuration
def conflict(without: Without) -> Configuration:
    """A job of mode `fail`, and another program that writes one of its two keys."""
    job = Job(mode="fail", named=False, without=without)
    store, accepted = tasks_done(job, ("x", "y"))
    return Configuration(
        "conflict",
        (
            committer("driver", job, accepted),
            Actor("neighbour", partial(overwriter, "y"), faulty=False),
            *in_the_end(job),
        ),
        store,
        promised=Promised(contested=True, overwrites=False),
    )


def _two_of(mode: str, without: Without, other: str = "") -> Configuration:
    modes = {"j1": mode, "j2": other or mode}
    jobs = tuple(Job(name, name, mode=one, without=without) for name, one in modes.items())
    actors: tuple[Actor, ...] = ()
    store: Entries = {}
    for job in jobs:
        done, message = task_done(job)
        store |= done

        actors = (*actors, actor(f"d{job.id[1:]}", job, partial(start_and_commit, job, (message,))))
    if mode == "replace":
        store |= objects({"old": Data("", "", "old")})
    # A job that yields to the other leaves the tasks' work, which was there before it: no I4 here.
    name = f"{mode} beside {other}" if other else f"two {mode} jobs"
    return Configuration(name, actors, store, promised=_alone(jobs))


def _alone(jobs: tuple[Job, ...]) -> Promised:
    return Promised(jobs=(), alone=tuple(job.uuid for job in jobs))


@configuration
def two_fail_jobs(without: Without) -> Configuration:
    """Two jobs of mode `fail` that start at once."""
    return _two_of("fail", without)


@configuration
def two_replace_jobs(without: Without) -> Configuration:
    """Two jobs of mode `replace` that start at once."""
    return _two_of("replace", without)


@configuration
def replace_beside_replace_partitions(without: Without) -> Configuration:
    """One that replaces the whole destination, and one that replaces a partition of it."""
    return _two_of("replace", without, "replace_partitions")


def _by_partition(
    name: str,
    without: Without,
    modes: tuple[str, str],
    files: tuple[tuple[str, ...], tuple[str, ...]] = (("p/x",), ("p/x",)),
    *,
    faults: int = 1,
    old: bool = True,
) -> Configuration:
    """Two jobs whose tasks are done; the files of each, each of a task of its own."""
    jobs = tuple(
        Job(f"j{n}", f"j{n}", mode=mode, marks=False, without=without)
        for n, mode in enumerate(modes, 1)
    )
    actors: tuple[Actor, ...] = ()
    store: Entries = objects({"p/old": Data("", "", "old")}) if old else {}
    for job, mine in zip(jobs, files, strict=True):
        messages: Accepted = ()
        for number, file in enumerate(mine):
            done, message = task_done(job, f"a{number}", f"t{number}", file)
            store |= done
            messages = (*messages, message)
        program = partial(start_and_commit, job, messages)
        actors = (*actors, actor(f"d{job.id[1:]}", job, program))
    uuids = tuple(job.uuid for job in jobs)
    promised = Promised(jobs=uuids, alone=uuids)
    everybody = (*actors, *in_the_end(*jobs))
    return Configuration(name, everybody, store, faults, promised=promised)


@configuration
def two_partition_replaces(without: Without) -> Configuration:
    """Two jobs that replace the same partition; either may begin and end while the other plans."""
    modes = ("replace_partitions", "replace_partitions")
    return _by_partition("two partition replaces", without, modes)


@configuration
def two_partition_fails(without: Without) -> Configuration:
    """Two jobs that want the same partition empty."""
    modes = ("fail_partitions", "fail_partitions")
    return _by_partition("two partition fails", without, modes, old=False)


@configuration
def partition_fail_and_replace(without: Without) -> Configuration:
    """A job that wants a partition empty, and one that replaces it."""
    modes = ("fail_partitions", "replace_partitions")
    return _by_partition("partition fail and replace", without, modes, old=False)


@configuration
def partition_fail_of_old(without: Without) -> Configuration:
    """The same where the partition holds data."""
    modes = ("fail_partitions", "replace_partitions")
    return _by_partition("partition fail of old", without, modes, faults=0)


@configuration
def overlapping_partitions(without: Without) -> Configuration:
    """Of two jobs one replaces a partition, the other that one and another."""
    modes = ("replace_partitions", "replace_partitions")
    files = (("p/x", "q/x"), ("q/x",))
    return _by_partition("overlapping partitions", without, modes, files, faults=0)


@configuration
def other_partitions(without: Without) -> Configuration:
    """Two jobs whose partitions differ."""
    modes = ("replace_partitions", "fail_partitions")
    files = (("p/x",), ("q/x",))
    return _by_partition("other partitions", without, modes, files)


@configuration
def partition_rivals(without: Without) -> Configuration:
    """Two drivers of one job by partition that have the same messages."""
    job = Job(mode="replace_partitions", marks=False, without=without)
    store, accepted = tasks_done(job, ("p/x",))
    return Configuration(
        "partition rivals",
        (committer("d1", job, accepted), committer("d2", job, accepted), *in_the_end(job)),
        {**store, **objects({"p/old": Data("", "", "old")})},
    )


def _append_beside(
    name: str,
    mode: str,
    without: Without,
    appended: tuple[str, ...],
    replaced: tuple[str, ...],
    faults: int = 1,
) -> Configuration:
    """A job that replaces data, and an append whose tasks are done."""
    replacing = Job("j1", "j1", mode=mode, marks=False, without=without)
    append = Job("j2", "j2", marks=False, without=without)
    store, one = tasks_done(replacing, replaced)
    more, two = tasks_done(append, appended)
    return Configuration(
        name,
        (
            committer("replace", replacing, one),
            committer("append", append, two),
            *in_the_end(replacing, append),
        ),
        {**store, **more, **objects({f"{replaced[0]}-old": Data("", "", "old")})},
        faults,
        promised=Promised(jobs=("j1", "j2")),
    )


@configuration
def append_beside_replace(without: Without) -> Configuration:
    """A job that replaces the whole destination, and an append of two files that may publish, and
    end, at any moment of it."""
    return _append_beside("append beside replace", "replace", without, ("x", "y"), ("z",))


@configuration
def late_attempt_beside_replace(without: Without) -> Configuration:
    """The same with an attempt of the append that was accepted, and finds out that it is late."""
    replacing = Job("j1", "j1", mode="replace", marks=False, without=without)
    append = Job("j2", "j2", marks=False, without=without)
    store, one = tasks_done(replacing, ("z",))
    more, two = tasks_done(append, ("x",))
    return Configuration(
        "late attempt beside replace",
        (
            committer("replace", replacing, one),
            committer("append", append, two),
            actor("late", append, partial(late, append, "a0", two[0])),
            *in_the_end(replacing, append),
        ),
        {**store, **more},
        promised=Promised(jobs=("j1", "j2")),
    )


@configuration
def append_beside_partition_replace(without: Without) -> Configuration:
    """A job that replaces two partitions, and an append that writes into both."""
    name = "append beside partition replace"
    both = ("p/x", "q/y")
    return _append_beside(name, "replace_partitions", without, both, both, 0)


@configuration
def withdrawn(without: Without) -> Configuration:
    """A `fail` job of a given id that finds data, and an attempt that attached to it by name."""
    job = Job(mode="fail", given=True, without=without)
    return Configuration(
        "withdrawn",
        (
            actor("driver", job, partial(driver, job, "driver", ())),
            actor("a0", job, partial(attached, job, "a0")),
            *in_the_end(job),
        ),
        objects({"old": Data("", "", "old")}),
    )


# Neighbours ---------------------------------------------------------------------------------------


def _two_markers(name: str, without: Without, *, clock_stands: bool) -> Configuration:
    first = Job("j1", "j1", without=without)
    second = Job("j2", "j2", without=without)
    store, one = tasks_done(first)
    done, other = task_done(second)
    order = {GHOST + "order": (("j1", "running"),), GHOST + "clock stands": clock_stands}
    return Configuration(
        name,
        (
            committer("d1", first, one),
            actor("d2", second, partial(start_and_commit, second, (other,))),
            *in_the_end(first, second),
        ),
        {**store, **done, **order},
        promised=Promised(jobs=("j1", "j2")),
    )


@configuration
def two_markers(without: Without) -> Configuration:
    """A job beside one that is started before or after it completes; a second passes with each."""
    return _two_markers("two markers", without, clock_stands=False)


@configuration
def two_markers_in_a_second(without: Without) -> Configuration:
    """The same within one second."""
    return _two_markers("two markers in a second", without, clock_stands=True)


@configuration
def foreign_upload(without: Without) -> Configuration:
    """Another program uploads into the directory while a job is swept."""
    job = Job(named=False, without=without)
    store, accepted = tasks_done(job)
    return Configuration(
        "foreign upload",
        (
            committer("driver", job, accepted),
            Actor("neighbour", partial(uploader, "z"), faulty=False),
            *in_the_end(job),
        ),
        store,
    )


@configuration
def adoption(without: Without) -> Configuration:
    """A job whose files have names of the user's is aborted; a zombie of it; an operator who takes
    what lies there for a Hadoop job's."""
    job = Job(accept="listing", named=False, without=without)
    return Configuration(
        "adoption",
        (
            actor("driver", job, partial(abort_job, job, "driver")),
            actor("zombie", job, partial(attempt, job, "zombie", content="cut"), faulty=False),
            Actor(
                "adopter",
                partial(adopter, job, "adopter", without),
                (job.uuid, "adopted"),
                faulty=False,
            ),
        ),
        started(job),
        faults=0,
        # Its uploads have names that nobody can attribute: I4 is not promised of them.
        promised=Promised(jobs=()),
    )


# One id, two runs ---------------------------------------------------------------------------------


@configuration
def id_used_again(without: Without) -> Configuration:
    """An id is given to a second run when the first is aborted and its closed record was taken away
    by an operator who was wrong: a zombie of it lives."""
    without |= {"a given id stays closed"}
    first = Job("j", "run1", accept="listing", given=True, without=without)
    second = Job("j", "run2", accept="listing", given=True, without=without)
    return Configuration(
        "id used again",
        (
            actor("abort", first, partial(abort_job, first, "abort")),
            actor("zombie", first, partial(attempt, first, "zombie", content="cut")),
            actor("driver", second, partial(driver, second, "driver", ())),
            *in_the_end(first, second),
        ),
        started(first),
        promised=Promised(jobs=("run1", "run2")),
    )


@configuration
def id_swept_twice(without: Without) -> Configuration:
    """An aborted run of a given id is swept by two; then the id is given to a second run, whose
    task has the name that the first one's had."""
    first = Job("j", "run1", accept="listing", given=True, without=without)
    second = Job("j", "run2", accept="listing", given=True, without=without)
    done, _ = task_done(first, "a0")
    return Configuration(
        "id swept twice",
        (
            actor("s1", first, partial(abort_job, first, "s1", may_remove=_gone(first))),
            actor("s2", first, partial(abort_job, first, "s2", may_remove=_gone(first))),
            actor("driver", second, partial(driver, second, "driver", (("a0",),))),
            actor("a0", second, partial(attempt, second, "a0", driver="driver")),
            *in_the_end(first, second),
        ),
        {**started(first), **done},
        promised=Promised(jobs=("run1", "run2")),
    )


def _gone(job: Job) -> bool:
    return not job.keeps("a given id stays closed")


# Streams ------------------------------------------------------------------------------------------


@configuration
def stream(without: Without) -> Configuration:
    """Two runs of one batch of a streaming query."""
    return _stream("stream", without, recovered=False)


@configuration
def stream_recovered(without: Without) -> Configuration:
    """The same, and a recovery of the first run beside them."""
    return _stream("stream recovered", without, recovered=True)


def _stream(name: str, without: Without, *, recovered: bool) -> Configuration:
    first = Job("j1", "j1", batch=1, marks=False, without=without)
    second = Job("j2", "j2", batch=1, marks=False, without=without)
    jobs = (first, second)
    store: Entries = objects({LEDGER: Ledger(0)})
    messages = []
    for job in jobs:
        done, message = task_done(job)
        store |= done
        messages.append(message)
    one, two = messages
    uuids = ("j1", "j2")
    beside = (actor("recovery", first, partial(recovery, first, "recovery")),) if recovered else ()
    return Configuration(
        name,
        (
            Actor("run1", partial(batch, first, "run1", (second,), (one,)), uuids),
            Actor("run2", partial(batch, second, "run2", (first,), (two,)), uuids),
            *beside,
            *in_the_end(*jobs),
        ),
        store,
        faults=0 if recovered else 1,
        promised=Promised(jobs=uuids, once=uuids),
    )
