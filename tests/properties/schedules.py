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
    """Play job J in words, leg by leg: ``task`` is the first task, run again if its first attempt
    does not tell that it is done; ``others`` the rest of them, ``tasks`` all.

    * A star: something happens to this leg, the play's next cut. ``wake 0``: the first of these
      legs goes on.
    * ``old data``: the destination holds some. ``begin replacing``: the job replaces it.
    * ``end``: if nobody was told how the job ended, somebody recovers it. ``or recover``: this, and
      the play is over, if its begin has failed. ``if struck``, ``if begun``: else it is over.
    * ``K``: another job runs wholly, and ``K aborts``. ``J commits``: it must have committed.
      ``need …``: the leg before must have gone well.
    """
    marked: list[Leg] = []
    for word in words.split("; "):
        starred = word.endswith("*")
        cut = play.cut(len(marked)) if starred else None
        match word.removesuffix("*").split():
            case ["old", "data"]:
                play.old_data()
            case ["begin", *how]:
                job = play.begin("J", cut, replace=how == ["replacing"])
                leg = job.began
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
            case [name, "commits"]:
                play.need_committed(play.jobs[name])
            case ["K", *how]:
                play.whole_job("K", aborts=how == ["aborts"])
            case ["or", "recover"]:
                if not job.begun or job.driver.dead:
                    play.recover(job)
                    return
            case ["if", what]:
                if not (play.stage.struck if what == "struck" else job.begun):
                    return
        if starred:
            marked.append(leg)


# The list -----------------------------------------------------------------------------------------

FAILURES = (*DEATHS, *ERRORS)
OTHER = {
    "begin": "begin*; K; wake 0; need the other job; if begun; tasks; commit; J commits",
    "task": "attempt 1*; K; wake 0; others; commit; J commits",
    "commit": "tasks; commit*; K; wake 0; J commits",
    "abort": "tasks; abort*; K; wake 0",
}
"""A second job in the same directory runs wholly at one request of the first: in which leg."""
OLD = {
    "begin": "old data; begin*; or recover; task; others; commit; end",
    "task": "old data; begin; or recover; task*; others; commit; end",
    "commit": "old data; begin; or recover; task; others; commit*; end",
    "abort": "old data; begin; or recover; task; others; abort*; end",
}
"""The destination holds data, and something happens to a job: in which leg."""
FOR_EVER = {"begin": "begin*", "commit": "tasks; commit*", "abort": "tasks; abort*"}
"""A driver stops for ever; somebody recovers its job, and the next job commits."""
ENDINGS = {"commits": "commit; end", "aborts": "abort; end"}


def _scenarios() -> Iterator[Scenario]:
    def told(
        name: str, words: str, cuts: tuple[tuple[str, ...], ...], tests: tuple[str, ...],
        *sizes: Size,
    ) -> Scenario:  # fmt: skip
        words = words if "begin" in words else f"begin; {words}"
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
    begins = "begin*; or recover; tasks; commit; end"
    tests = (*ENDS[:4], *ALWAYS)
    yield told("something happens when the job begins", begins, one, tests, SMALL)
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
    for where, words in FOR_EVER.items():
        words += "; if struck; recover; need the recovery; K; K commits"
        name = f"the driver ends for ever: {where}"
        yield told(name, words, for_ever, ("non-blocking",), SMALL)
    for where, words in OTHER.items():
        for ends in ("commits", "aborts"):
            name = f"another job that {ends} inside: {where}"
            others = (
                words.replace("; K;", "; K aborts;") if ends == "aborts" else f"{words}; K commits"
            )
            yield told(name, others, stops, ("concurrent jobs",), SMALL)
        for stays, how in (("stays", "begin"), ("is replaced", "begin replacing")):
            name = f"old data {stays}; something happens: {where}"
            old = OLD[where].replace("begin", how, 1)
            yield told(name, old, one, ("nothing lost on failure",), SMALL)
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
