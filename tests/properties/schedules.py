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

from tests.properties.play import Play, Size, run
from tests.properties.stage import DEATHS, ERRORS, NOTHING, STOP, Asked, Cut, Leg
from tests.properties.subjects import Subject

SMALL, LARGE = Size(tasks=1, files=2), Size(tasks=2, files=2)
"""Small jobs are tried first: a witness is to be short."""

Program = Callable[[Play], None]

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


# Programs -----------------------------------------------------------------------------------------


def legs(words: str, play: Play) -> None:
    """Begin a job, and play it in words, leg by leg: ``task`` is the first task, run again if its
    first attempt does not tell that it is done; ``others`` the rest of them, ``tasks`` all.

    * A star: something happens to this leg, the play's next cut. ``wake 0``: the first of these
      legs goes on.
    * ``end``: if nobody was told how the job ended, somebody recovers it. ``if struck``: the play
      is over unless a cut has struck. ``need …``: the leg before must have gone well.
    """
    marked: list[Leg] = []
    job = play.begin("J")
    leg = job.began
    for word in words.split("; "):
        starred = word.endswith("*")
        cut = play.cut(len(marked)) if starred else None
        match word.removesuffix("*").split():
            case ["end"]:
                play.end(job)
            case ["task"]:
                leg = play.run_task(job, "0", cut)
            case ["attempt", number]:
                leg = play.attempt(job, "0", int(number), cut)
            case ["tasks" | "others" as which]:
                play.run_tasks(job, int(which == "others"))
            case ["all", "at", "once"]:
                play.stage.side_by_side(*(play.started_attempt(job, t, 1) for t in play.tasks))
            case ["commit" | "abort" | "recover" | "replay" as verb]:
                leg = getattr(play, verb)(job, cut)
            case ["wake", number]:
                play.stage.go_on(marked[int(number)])
            case ["need", *who]:
                play.need(leg, " ".join(who))
            case ["if", "struck"]:
                if not play.stage.struck:
                    return
        if starred:
            marked.append(leg)


def begin_fails(play: Play) -> None:
    """Something happens when the job begins."""
    job = play.begin("J", play.cut(0))
    if job.begun and not job.driver.dead:
        play.run_tasks(job)
        play.commit(job)
        play.end(job)
    else:
        play.recover(job)


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
ENDINGS = {"commits": "commit; end", "aborts": "abort; end"}


def _scenarios() -> Iterator[Scenario]:
    def told(
        name: str, words: str, cuts: tuple[tuple[str, ...], ...], tests: tuple[str, ...],
        *sizes: Size,
    ) -> Scenario:  # fmt: skip
        return Scenario(name, partial(legs, words), cuts, tests, sizes or (SMALL, LARGE))

    yield told("nothing happens", "tasks; commit; end", (), (*ENDS[:2], *ALWAYS))
    yield told("the job is aborted", "tasks; abort; end", (), (ENDS[2], *ALWAYS))
    yield told("all tasks at once", "all at once; commit; end", (), ("concurrent",), LARGE)
    again = "tasks; commit*; replay; need the second commit; if struck; wake 0"
    yield told("the commit is called again", again, (), ("job commit repeatable",))
    one, stops = ((*FAILURES,),), ((STOP,),)
    for job, ending in ENDINGS.items():
        name = f"something happens to a task; the job {job}"
        yield told(name, f"task*; others; {ending}", one, (*ENDS, *ALWAYS))
    for when in ("before the end", "after the end"):
        for job, ending in ENDINGS.items():
            name = f"an attempt stops, and goes on {when}; the job {job}"
            words = (
                f"task*; wake 0; others; {ending}" if when == "before the end"
                else f"task*; others; {ending}; wake 0"
            )  # fmt: skip
            yield told(name, words, stops, (*ENDS, *ALWAYS))
    inside = "attempt 1*; others; wake 0; commit; end"
    yield told("a task runs at a request of another", inside, stops, ("concurrent",), LARGE)
    yield Scenario(
        "something happens when the job begins", begin_fails, one, (*ENDS[:4], *ALWAYS), (SMALL,)
    )
    tests = (*IN_COMMIT, *ALWAYS)
    yield told("something happens inside the commit", "tasks; commit*; end", one, tests)
    in_abort = "tasks; abort*; end"
    yield told("something happens inside the abort", in_abort, one, ENDS[2:4], SMALL)
    died = ((*DEATHS, STOP),)
    yield told(
        "the driver ends inside the commit, the job is recovered",
        "tasks; commit*; if struck; recover; need the recovery; wake 0",
        died, ("job commit recoverable", "continuity of correctness"),
    )  # fmt: skip
    yield told(
        "the driver ends inside the commit, which is called again", again,
        died, ("job commit repeatable", "continuity of correctness"),
    )  # fmt: skip
    for_ever = (("dies before", STOP),)
    yield told(
        "an attempt ends for ever",
        "attempt 1*; if struck; attempt 2; need another attempt; others; commit;"
        " need the job's commit",
        for_ever, ("non-blocking",), SMALL,
    )  # fmt: skip
    for where in ("begin", "commit", "abort"):
        yield Scenario(
            f"the driver ends for ever: {where}",
            partial(driver_stops, where), for_ever, ("non-blocking",), (SMALL,),
        )  # fmt: skip
    for where in LEGS:
        for other in (False, True):
            name = f"another job that {'aborts' if other else 'commits'} inside: {where}"
            program = partial(two_jobs, where, other)
            yield Scenario(name, program, stops, ("concurrent jobs",), (SMALL,))
        for replace in (False, True):
            name = f"old data {'is replaced' if replace else 'stays'}; something happens: {where}"
            program = partial(replaces, where, replace)
            yield Scenario(name, program, one, ("nothing lost on failure",), (SMALL,))
    two = ((STOP,), (STOP,))
    yield told(
        "two attempts, one inside the other",
        "attempt 1*; attempt 2*; wake 0; wake 1; others; commit; end", two, ENDS, SMALL,
    )  # fmt: skip
    yield told(
        "an attempt goes on inside the commit",
        "task*; others; commit*; wake 0; wake 1; end", two, ENDS, SMALL,
    )  # fmt: skip
    yield told(
        "a request of the commit is late, and an attempt goes on after the end",
        "task*; others; commit*; end; wake 0",
        ((STOP,), ("lands late",)), ("continuity of correctness",), SMALL,
    )  # fmt: skip
    yield told(
        "the recovery dies, too",
        "tasks; commit*; if struck; recover*; recover; need the second recovery",
        (("dies before",), ("dies before",)), ("job commit recoverable",), SMALL,
    )  # fmt: skip


SCENARIOS = tuple(_scenarios())


def plays(
    subject: Subject, scenario: Scenario, size: Size, before: tuple[Cut, ...] = ()
) -> Iterator[Play]:
    """Every play of a scenario that begins with these cuts: each other one at each request of its
    leg that `tells` something."""
    place = len(before)
    if place == len(scenario.cuts):
        play = run(subject, size, before, scenario.program)
        assert play.struck, f"{before} did not strike: {scenario.name}"
        yield play
        return
    marked = run(subject, size, (*before, Cut(NOTHING, 0)), scenario.program).stage.marked
    asked = marked[place] if place < len(marked) else []
    for kind in scenario.cuts[place]:
        for nth in range(1, len(asked) + 1):
            if tells(kind, nth, asked):
                yield from plays(subject, scenario, size, (*before, Cut(kind, nth)))


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
