"""What is done to a committer: scenarios, and where each is cut.

A scenario is a sequence of legs. Its cuts are tried at every request of the leg that they belong
to: one cut gives as many schedules as the leg has requests, two give the product. With few changes
of place a schedule can be told in a few lines; and where a protocol breaks at all, few are enough
(*context bounding*). Of cuts that give the same schedule one is tried (`tells`). Scenarios come in
order: those with fewer cuts first, so what is found first is short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from tests.properties.play import JobPlayed, Play, Size, run
from tests.properties.stage import DEATHS, ERRORS, NOTHING, STOP, Asked, Cut
from tests.properties.subjects import Subject

SMALL, LARGE = Size(tasks=1, files=2), Size(tasks=2, files=2)
"""Small jobs are tried first: a witness is to be short."""

Program = Callable[[Play], None]
Ending = Callable[[Play, JobPlayed], None]

ENDS = ("complete", "exclusive", "abortable", "continuity of correctness", "task commit atomic")
ALWAYS = ("job commit atomic", "invisible before the commit")
IN_COMMIT = ("complete", "exclusive", "abortable", "continuity of correctness")


@dataclass(frozen=True)
class Scenario:
    """A sequence of legs.

    Attributes:
        name: what happens, in words. program: plays it.
        cuts: for each cut what kinds of it are tried.
        tests: names of the properties that it tries to break.
        sizes: of the jobs.
    """

    name: str
    program: Program
    cuts: tuple[tuple[str, ...], ...]
    tests: tuple[str, ...]
    sizes: tuple[Size, ...] = (SMALL, LARGE)


# Endings ------------------------------------------------------------------------------------------


def commits(play: Play, job: JobPlayed) -> None:
    """The driver commits; if nobody is told how it ended, somebody recovers the job."""
    commits_cut(play, job, None)


def commits_cut(play: Play, job: JobPlayed, cut: Cut | None) -> None:
    """The same, and something happens to the driver."""
    play.commit(job, cut)
    play.end(job)


def aborts(play: Play, job: JobPlayed) -> None:
    """The driver aborts."""
    play.abort(job)
    play.end(job)


# Programs -----------------------------------------------------------------------------------------


def calm(ending: Ending, play: Play) -> None:
    """Nothing happens."""
    job = play.begin("J")
    play.run_tasks(job)
    ending(play, job)


def task_fails(ending: Ending, play: Play) -> None:
    """Something happens to the first attempt of a task."""
    job = play.begin("J")
    play.run_task(job, "0", play.cut(0))
    play.run_tasks(job, 1)
    ending(play, job)


def task_wakes(when: str, ending: Ending, play: Play) -> None:
    """The first attempt of a task stops, is taken for lost, and goes on later."""
    job = play.begin("J")
    first = play.run_task(job, "0", play.cut(0))
    if when == "before the end":
        play.stage.go_on(first)
    play.run_tasks(job, 1)
    ending(play, job)
    if when == "after the end":
        play.stage.go_on(first)


def two_attempts(play: Play) -> None:
    """Two attempts of a task, each of them stopped inside the other."""
    job = play.begin("J")
    first = play.attempt(job, "0", 1, play.cut(0))
    second = play.attempt(job, "0", 2, play.cut(1))
    play.stage.go_on(first)
    play.stage.go_on(second)
    play.run_tasks(job, 1)
    commits(play, job)


def task_wakes_inside(play: Play) -> None:
    """The first attempt of a task stops, and goes on inside the job's commit."""
    job = play.begin("J")
    first = play.run_task(job, "0", play.cut(0))
    play.run_tasks(job, 1)
    driver = play.commit(job, play.cut(1))
    play.stage.go_on(first)
    play.stage.go_on(driver)
    play.end(job)


def task_wakes_after(play: Play) -> None:
    """The first attempt of a task stops, something happens inside the job's commit, and the attempt
    goes on after the end."""
    job = play.begin("J")
    first = play.run_task(job, "0", play.cut(0))
    play.run_tasks(job, 1)
    commits_cut(play, job, play.cut(1))
    play.stage.go_on(first)


def task_inside_task(play: Play) -> None:
    """A whole task runs at one request of another one."""
    job = play.begin("J")
    first = play.attempt(job, "0", 1, play.cut(0))
    play.run_tasks(job, 1)
    play.stage.go_on(first)
    commits(play, job)


def tasks_side_by_side(play: Play) -> None:
    """All tasks at once, a request of each in turn."""
    job = play.begin("J")
    play.stage.side_by_side(*(play.started_attempt(job, task, 1) for task in play.tasks))
    commits(play, job)


def commit_fails(play: Play) -> None:
    """Something happens inside the job's commit."""
    job = play.begin("J")
    play.run_tasks(job)
    commits_cut(play, job, play.cut(0))


def commit_recovered(play: Play) -> None:
    """The driver dies or stops inside the commit; another process ends the job; if the driver has
    only stopped, it goes on then."""
    job = play.begin("J")
    play.run_tasks(job)
    driver = play.commit(job, play.cut(0))
    if play.stage.struck:
        play.need(play.recover(job), "the recovery")
        play.stage.go_on(driver)


def commit_replayed(play: Play) -> None:
    """The same, but the other process calls the job's commit."""
    job = play.begin("J")
    play.run_tasks(job)
    driver = play.commit(job, play.cut(0))
    play.need(play.replay(job), "the second commit")
    if play.stage.struck:
        play.stage.go_on(driver)


def recovery_dies(play: Play) -> None:
    """The driver dies inside the commit, and so does who recovers the job; a third one ends it."""
    job = play.begin("J")
    play.run_tasks(job)
    play.commit(job, play.cut(0))
    if play.stage.struck:
        play.recover(job, play.cut(1))
        play.need(play.recover(job), "the second recovery")


def begin_fails(play: Play) -> None:
    """Something happens when the job begins."""
    job = play.begin("J", play.cut(0))
    if job.begun and not job.driver.dead:
        play.run_tasks(job)
        commits(play, job)
    else:
        play.recover(job)


def abort_fails(play: Play) -> None:
    """A task fails, and something happens inside the job's abort."""
    job = play.begin("J")
    play.run_tasks(job)
    play.abort(job, play.cut(0))
    play.end(job)


def two_jobs(where: str, other_aborts: bool, play: Play) -> None:
    """A second job in the same directory runs wholly at one request of the first."""
    job = play.begin("J", play.cut(0) if where == "begin" else None)
    if where == "begin":
        play.whole_job("K", aborts=other_aborts)
        play.stage.go_on(job.began)
        play.need(job.began, "the other job")
        if not job.begun:
            return
        play.run_tasks(job)
    elif where == "task":
        leg = play.attempt(job, "0", 1, play.cut(0))
        play.whole_job("K", aborts=other_aborts)
        play.stage.go_on(leg)
        play.run_tasks(job, 1)
    else:
        play.run_tasks(job)
        ending = play.commit if where == "commit" else play.abort
        leg = ending(job, play.cut(0))
        play.whole_job("K", aborts=other_aborts)
        play.stage.go_on(leg)
    if where in ("begin", "task"):
        play.commit(job)
    if where != "abort":
        play.need_committed(job)
    if not other_aborts:
        play.need_committed(play.jobs["K"])


def replaces(where: str, replace: bool, play: Play) -> None:
    """The destination holds data, and something happens to a job."""
    play.old_data()
    job = play.begin("J", play.cut(0) if where == "begin" else None, replace=replace)
    if not job.begun or job.driver.dead:
        play.recover(job)
        return
    play.run_task(job, "0", play.cut(0) if where == "task" else None)
    play.run_tasks(job, 1)
    if where == "abort":
        play.abort(job, play.cut(0))
    else:
        play.commit(job, play.cut(0) if where == "commit" else None)
    play.end(job)


def task_stops(play: Play) -> None:
    """An attempt stops for ever; another one, and the job's commit, go on."""
    job = play.begin("J")
    play.attempt(job, "0", 1, play.cut(0))
    if play.stage.struck:
        play.need(play.attempt(job, "0", 2), "another attempt")
        play.run_tasks(job, 1)
        play.need(play.commit(job), "the job's commit")


def driver_stops(where: str, play: Play) -> None:
    """A driver stops for ever; somebody recovers its job, and the next job commits."""
    job = play.begin("J", play.cut(0) if where == "begin" else None)
    if where != "begin":
        play.run_tasks(job)
        ending = play.commit if where == "commit" else play.abort
        ending(job, play.cut(0))
    if play.stage.struck:
        play.need(play.recover(job), "the recovery")
        play.whole_job("K")
        play.need_committed(play.jobs["K"])


# The list -----------------------------------------------------------------------------------------

FAILURES = (*DEATHS, *ERRORS)
LEGS = ("begin", "task", "commit", "abort")


def _scenarios() -> Iterator[Scenario]:
    yield Scenario("nothing happens", partial(calm, commits), (), (*ENDS[:2], *ALWAYS))
    yield Scenario("the job is aborted", partial(calm, aborts), (), (ENDS[2], *ALWAYS))
    yield Scenario("all tasks at once", tasks_side_by_side, (), ("concurrent",), (LARGE,))
    yield Scenario("the commit is called again", commit_replayed, (), ("job commit repeatable",))
    one = ((*FAILURES,),)
    for ending in (commits, aborts):
        name = f"something happens to a task; the job {ending.__name__}"
        yield Scenario(name, partial(task_fails, ending), one, (*ENDS, *ALWAYS))
    for when in ("before the end", "after the end"):
        for ending in (commits, aborts):
            name = f"an attempt stops, and goes on {when}; the job {ending.__name__}"
            program = partial(task_wakes, when, ending)
            yield Scenario(name, program, ((STOP,),), (*ENDS, *ALWAYS))
    yield Scenario(
        "a task runs at a request of another",
        task_inside_task,
        ((STOP,),),
        ("concurrent",),
        (LARGE,),
    )
    yield Scenario(
        "something happens when the job begins", begin_fails, one, (*ENDS[:4], *ALWAYS), (SMALL,)
    )
    yield Scenario("something happens inside the commit", commit_fails, one, (*IN_COMMIT, *ALWAYS))
    yield Scenario("something happens inside the abort", abort_fails, one, ENDS[2:4], (SMALL,))
    died = ((*DEATHS, STOP),)
    yield Scenario(
        "the driver ends inside the commit, the job is recovered",
        commit_recovered, died, ("job commit recoverable", "continuity of correctness"),
    )  # fmt: skip
    yield Scenario(
        "the driver ends inside the commit, which is called again",
        commit_replayed, died, ("job commit repeatable", "continuity of correctness"),
    )  # fmt: skip
    yield Scenario(
        "an attempt ends for ever",
        task_stops,
        (("dies before", STOP),),
        ("non-blocking",),
        (SMALL,),
    )
    for where in ("begin", "commit", "abort"):
        yield Scenario(
            f"the driver ends for ever: {where}",
            partial(driver_stops, where), (("dies before", STOP),), ("non-blocking",), (SMALL,),
        )  # fmt: skip
    for where in LEGS:
        for other in (False, True):
            name = f"another job that {'aborts' if other else 'commits'} inside: {where}"
            program = partial(two_jobs, where, other)
            yield Scenario(name, program, ((STOP,),), ("concurrent jobs",), (SMALL,))
        for replace in (False, True):
            name = f"old data {'is replaced' if replace else 'stays'}; something happens: {where}"
            program = partial(replaces, where, replace)
            yield Scenario(name, program, one, ("nothing lost on failure",), (SMALL,))
    two = ((STOP,), (STOP,))
    yield Scenario("two attempts, one inside the other", two_attempts, two, ENDS, (SMALL,))
    yield Scenario("an attempt goes on inside the commit", task_wakes_inside, two, ENDS, (SMALL,))
    yield Scenario(
        "a request of the commit is late, and an attempt goes on after the end", task_wakes_after,
        ((STOP,), ("lands late",)), ("continuity of correctness",), (SMALL,),
    )  # fmt: skip
    yield Scenario(
        "the recovery dies, too", recovery_dies, (("dies before",), ("dies before",)),
        ("job commit recoverable",), (SMALL,),
    )  # fmt: skip


SCENARIOS = tuple(_scenarios())


def plays(
    subject: Subject, scenario: Scenario, size: Size, *, every: bool = False
) -> Iterator[Play]:
    """Every play of a scenario: each cut at each request of its leg. ``every``: also those that
    `tells` leaves out."""
    if scenario.cuts:
        yield from _cut(subject, scenario, size, (), every)
    else:
        yield run(subject, size, (), scenario.program)


def _cut(
    subject: Subject, scenario: Scenario, size: Size, before: tuple[Cut, ...], every: bool
) -> Iterator[Play]:
    place = len(before)
    marked = run(subject, size, (*before, Cut(NOTHING, 0)), scenario.program).stage.marked
    asked = marked[place] if place < len(marked) else []
    for kind in scenario.cuts[place]:
        for nth in range(1, len(asked) + 1):
            if not (every or tells(kind, nth, asked)):
                continue
            cuts = (*before, Cut(kind, nth))
            if place + 1 < len(scenario.cuts):
                yield from _cut(subject, scenario, size, cuts, every)
                continue
            play = run(subject, size, cuts, scenario.program)
            assert play.struck, f"{cuts} did not strike: {scenario.name}"
            yield play


def tells(kind: str, nth: int, asked: Sequence[Asked]) -> bool:
    """Whether a cut does something that no other one of its leg does. Pure.

    Who dies before a request has done what those before it did: if the last of them changed
    nothing, he might as well have died before that one. To die after a request is to die before the
    next. A request that changes nothing may be sent twice, and if its answer is lost, it does not
    matter when it lands. Requests of different steps are kept apart, for properties ask in which
    step somebody was struck.

    Args:
        kind, nth: of the cut.
        asked: the requests of the leg without it.
    """
    this = asked[nth - 1]
    if kind == "dies before":
        return nth == 1 or asked[nth - 2] != Asked(this.step, reads=True)
    if kind == "dies after":
        return not this.reads and (nth == len(asked) or asked[nth].step != this.step)
    return not this.reads or kind in (STOP, "lost reply")
