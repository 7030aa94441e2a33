"""What is done to a committer: scenarios, and where each is cut.

A scenario is a sequence of legs. Its cuts are tried at every request of the leg that they belong
to: one cut gives as many schedules as the leg has requests, two give the product. With few changes
of place a schedule can be told in a few lines; and where a protocol breaks at all, few are enough
(*context bounding*). Of cuts that give the same schedule one is tried (`tells`). Scenarios come in
order: those with fewer cuts first, so what is found first is short.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from tests.properties.play import Play, Size, Subject, old_files, run
from tests.properties.stage import DEATHS, ERRORS, NOTHING, STOP, Asked, Cut, Leg

SMALL, LARGE = Size(tasks=1, files=2), Size(tasks=2, files=2)
"""Small jobs are tried first: a witness is to be short."""


@dataclass(frozen=True)
class Scenario:
    """A sequence of legs, in words (`play_legs`). ``cuts``: for each starred leg what kinds of cut
    are tried. ``tests``: names of the properties that it tries to break. ``sizes``: of the jobs."""

    words: str
    cuts: tuple[tuple[str, ...], ...]
    tests: tuple[str, ...]
    sizes: tuple[Size, ...]


def play_legs(words: str, play: Play) -> None:
    """Play job J in words, leg by leg: ``task`` is the first task, run again if its first attempt
    does not tell that it is done; ``others`` the rest of them, ``tasks`` all.

    * A star: something happens to this leg, the play's next cut. ``wake 0``: the first of these
      legs goes on.
    * ``old data``: the destination holds some. ``begin replacing``: the job replaces it.
    * ``end``: if nobody was told how the job ended, somebody recovers it. ``or recover``: this, and
      the play is over, if its begin has failed. ``if struck``, ``if begun``: else it is over.
    * ``K commit``, ``K abort``: another job runs wholly. ``J committed``: it must have. ``need …``:
      the leg before must have gone well.
    """
    marked: list[Leg] = []
    for word in words.split("; "):
        starred = word.endswith("*")
        cut = play.cuts[len(marked)] if starred and len(marked) < len(play.cuts) else None
        match word.removesuffix("*").split():
            case ["old", "data"]:
                play.old_data(old_files())
            case ["begin", *how]:
                job, leg = play.begin("J", cut, replace=how == ["replacing"])
            case ["end"]:
                play.end(job)
            case ["task"]:
                leg = play.run_task(job, "0", cut)
            case ["attempt", number]:
                leg = play.attempt(job, "0", int(number), cut)
                play.go_on(leg)
            case ["tasks" | "others" as which]:
                play.run_tasks(job, int(which == "others"))
            case ["all", "at", "once"]:
                play.go_on(*(play.attempt(job, task, 1) for task in play.tasks))
            case ["commit" | "abort" | "recover" | "replay" as verb]:
                leg = play.act(job, verb, cut)
            case ["wake", number]:
                play.go_on(marked[int(number)])
            case ["need", *who]:
                play.need(leg, " ".join(who))
            case [name, "committed"]:
                play.need_committed(play.jobs[name])
            case ["K", last]:
                play.whole_job("K", last)
            case ["or", "recover"]:
                if not job.begun or job.driver.dead:
                    play.act(job, "recover")
                    return
            case ["if", what]:
                if not (play.struck if what == "struck" else job.begun):
                    return
            case _:
                raise ValueError(word)
        if starred:
            marked.append(leg)


# The list -----------------------------------------------------------------------------------------

ENDS = ("complete", "exclusive", "abortable", "continuity of correctness", "task commit atomic")
ALWAYS = ("job commit atomic", "invisible before the commit")
TESTS = {
    "commits": (*ENDS[:2], *ALWAYS), "aborts": (ENDS[2], *ALWAYS), "ends": ENDS,
    "all": (*ENDS, *ALWAYS), "job": (*ENDS[:4], *ALWAYS), "abort": ENDS[2:4],
    "tasks": ("concurrent",), "jobs": ("concurrent jobs",), "lost": ("nothing lost on failure",),
    "blocks": ("non-blocking",), "late": (ENDS[3],),
    "recovers": ("job commit recoverable",), "repeats": ("job commit repeatable",),
    "recovers, late": ("job commit recoverable", ENDS[3]),
    "repeats, late": ("job commit repeatable", ENDS[3]),
}  # fmt: skip
KINDS = {
    "fails": (*DEATHS, *ERRORS), "stops": (STOP,), "late": ("late",), "dies": DEATHS[:1],
    "dies or stops": (*DEATHS, STOP), "ends": (DEATHS[0], STOP),
}  # fmt: skip
SIZES = {"": (SMALL, LARGE), "small": (SMALL,), "large": (LARGE,)}
_SCENARIOS = """
tasks; commit; end | | commits
tasks; abort; end | | aborts
all at once; commit; end | | tasks | large
tasks; commit*; replay; need the second commit; if struck; wake 0 | | repeats
task*; others; commit; end | fails | all
task*; others; abort; end | fails | all
task*; wake 0; others; commit; end | stops | all
task*; wake 0; others; abort; end | stops | all
task*; others; commit; end; wake 0 | stops | all
task*; others; abort; end; wake 0 | stops | all
attempt 1*; others; wake 0; commit; end | stops | tasks | large
begin*; or recover; tasks; commit; end | fails | job | small
tasks; commit*; end | fails | job
tasks; abort*; end | fails | abort | small
tasks; commit*; if struck; recover; need the recovery; wake 0 | dies or stops | recovers, late
tasks; commit*; replay; need the second commit; if struck; wake 0 | dies or stops | repeats, late
attempt 1*; if struck; attempt 2; need it; others; commit; need the commit | ends | blocks | small
begin*; if struck; recover; need the recovery; K commit; K committed | ends | blocks | small
tasks; commit*; if struck; recover; need the recovery; K commit; K committed | ends | blocks | small
tasks; abort*; if struck; recover; need the recovery; K commit; K committed | ends | blocks | small
begin*; K {}; wake 0; need this job; if begun; tasks; commit; J committed | stops | jobs | small
attempt 1*; K {}; wake 0; others; commit; J committed | stops | jobs | small
tasks; commit*; K {}; wake 0; J committed | stops | jobs | small
tasks; abort*; K {}; wake 0 | stops | jobs | small
old data; begin*; or recover; task; others; commit; end | fails | lost | small
old data; begin; or recover; task*; others; commit; end | fails | lost | small
old data; begin; or recover; task; others; commit*; end | fails | lost | small
old data; begin; or recover; task; others; abort*; end | fails | lost | small
attempt 1*; attempt 2*; wake 0; wake 1; others; commit; end | stops stops | ends | small
task*; others; commit*; wake 0; wake 1; end | stops stops | ends | small
task*; others; commit*; end; wake 0 | stops late | late | small
tasks; commit*; if struck; recover*; recover; need another recovery | dies dies | recovers | small
"""
"""A line each: the words, where ``begin`` may be left out; what happens to the starred legs; which
properties it tries; the size. ``K {}``: the other job commits, and must have; or it aborts."""


def _scenarios() -> Iterator[Scenario]:
    for line in _SCENARIOS.strip().splitlines():
        words, kinds, tests, *size = (part.strip() for part in line.split(" |"))
        starred = kinds.split() if kinds not in KINDS else [kinds] if kinds else []
        cuts = tuple(KINDS[kind] for kind in starred)
        words = words if "begin" in words else f"begin; {words}"
        variants = [words]
        if "K {}" in words:
            variants = [f"{words.format('commit')}; K committed", words.format("abort")]
        if words.startswith("old data"):
            variants.append(words.replace("begin", "begin replacing", 1))
        for one in variants:
            yield Scenario(one, cuts, TESTS[tests], SIZES["".join(size)])


SCENARIOS = tuple(_scenarios())


def plays(
    subject: Subject, scenario: Scenario, size: Size, before: tuple[Cut, ...] = ()
) -> Iterator[Play]:
    """Every play of a scenario that begins with these cuts: each other one at each request of its
    leg that `tells` something."""
    place, program = len(before), partial(play_legs, scenario.words)
    if place == len(scenario.cuts):
        play = run(subject, size, before, program)
        assert len(play.struck) == len(before), f"{before} did not strike: {scenario.words}"
        yield play
        return
    marked = run(subject, size, (*before, Cut(NOTHING, 0)), program).marked
    asked = marked[place] if place < len(marked) else []
    for kind in scenario.cuts[place]:
        for nth in range(1, len(asked) + 1):
            if tells(kind, nth, asked):
                yield from plays(subject, scenario, size, (*before, Cut(kind, nth)))


def tells(kind: str, nth: int, asked: Sequence[Asked]) -> bool:
    """Whether a cut of the ``nth`` of these requests does something that no other one of its leg
    does.

    Who dies before a request has done what those before it did: if the last of them changed
    nothing, he might as well have died before that one. To die after a request is to die before the
    next. A request that changes nothing may be sent twice, and if its answer is lost, it does not
    matter when it lands. Requests of different steps are kept apart, for properties ask in which
    step somebody was struck.
    """
    this = asked[nth - 1]
    if kind == DEATHS[0]:
        return nth == 1 or asked[nth - 2] != Asked(this.step, reads=True)
    if kind == DEATHS[1]:
        return not this.reads and (nth == len(asked) or asked[nth].step != this.step)
    return not this.reads or kind in (STOP, "lost reply")
