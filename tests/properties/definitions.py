"""The properties by which committers are compared, one sentence and one judge each.

The first five are the requirements of Hadoop's commit protocol, as its documentation of the
manifest committer and the paper *A Zero-Rename Committer* word them. The others are what the paper
leaves out on purpose, or asks of engines instead, and what operators ask for. Everywhere *visible*
means: found by a reader of the destination, with the reader that the committer asks for
(`Subject.read`).

A judge reads what happened in one play. It returns None where the play made no attempt to break the
property; otherwise the words of what broke, or "" where it held. So whoever counts the answers that
are not None knows how often the property could have failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.properties.play import OLD, OLD_FILES, AttemptName, JobPlayed, Play, Told, body_of
from tests.properties.stage import View

Judge = Callable[[Play], str | None]


@dataclass(frozen=True)
class Property:
    """One property: its row in the table, its definition in one sentence, its judge."""

    name: str
    says: str
    judge: Judge


PROPERTIES: list[Property] = []


def decided(name: str, says: str) -> Callable[[Judge], Judge]:
    """Enter a property that a judge decides."""

    def enter(judge: Judge) -> Judge:
        PROPERTIES.append(Property(name, says, judge))
        return judge

    return enter


# What a reader found ------------------------------------------------------------------------------


def found(view: View, job: str) -> dict[AttemptName, set[str]]:
    """Files of a job that a reader found, by the attempt that wrote them. A file that was found
    under two names is there under the second one, too."""
    by_attempt: dict[AttemptName, set[str]] = {}
    bodies: set[bytes] = set()
    for key, body in view.items():
        whose, task, number, name = body.decode().split("|")
        if whose == job:
            again = f" again, as {key}" if body in bodies else ""
            by_attempt.setdefault(AttemptName(whose, task, int(number)), set()).add(name + again)
            bodies.add(body)
    return by_attempt


def missing(play: Play, view: View, job: str) -> str:
    """ "" if of each task all files of one attempt are there. An attempt counts whose commit was
    called: if its process died in it, nobody but the committer knows whether it is committed."""
    there = found(view, job)
    for task in play.tasks:
        asked = [a for a in sorted(play.asked_to_commit) if (a.job, a.task) == (job, task)]
        lacks = [sorted(play.wrote[a] - there.get(a, set())) for a in asked]
        if not lacks:
            return f"{job}: task {task} was never committed, and the job was"
        if all(lacks):
            return f"{job}: {', '.join(lacks[-1])} of task {task} is not visible"
    return ""


def surplus(play: Play, view: View, job: str) -> str:
    """ "" if what is there of each task is of one attempt, which had begun to commit."""
    there = found(view, job)
    for task in play.tasks:
        ours = sorted(a for a in there if a.task == task)
        if len(ours) > 1:
            parts = (f"{', '.join(sorted(there[a]))} of attempt {a.number}" for a in ours)
            return f"{job}: of task {task} a reader finds {' and '.join(parts)}"
        for one in ours:
            extra = sorted(there[one] - play.wrote[one])
            if extra:
                return f"{job}: a reader finds {', '.join(extra)}"
            if one not in play.asked_to_commit:
                names = ", ".join(sorted(there[one]))
                return f"{job}: {names} is visible, of attempt {one.number}, which never committed"
    return ""


def inexact(play: Play, view: View, job: str) -> str:
    """ "" if exactly the files of one committed attempt of each task are there."""
    return missing(play, view, job) or surplus(play, view, job)


def any_of(view: View, job: str) -> str:
    """ "" if nothing of a job is there."""
    names = sorted(name for them in found(view, job).values() for name in them)
    return f"{job}: {', '.join(names)} is visible" if names else ""


def lost(view: View) -> str:
    """ "" if all old data is there."""
    bodies = set(view.values())
    gone = [n for n in OLD_FILES if body_of(AttemptName(OLD, OLD, 0), n) not in bodies]
    return f"{', '.join(gone)} is gone" if gone else ""


def untrue(play: Play, one: Told, view: View) -> str:
    """ "" if what was told of a job is what a reader finds."""
    if not one.outcome:
        return f"{one.job}: nobody can tell what became of it"
    wrong = inexact(play, view, one.job) if one.outcome == "committed" else any_of(view, one.job)
    return f"the {one.by} told that {one.job} is {one.outcome}; {wrong}" if wrong else ""


def view_after(play: Play, count: int) -> View:
    return play.stage.moments[count - 1].view if count else {}


def told(play: Play, outcome: str) -> Iterator[tuple[str, View]]:
    """Each job of which somebody was told that outcome, and what a reader found then."""
    for one in play.told:
        if one.outcome == outcome:
            yield one.job, view_after(play, one.after)


def struck_in(play: Play, *steps: str) -> bool:
    """Whether a cut struck a process in one of these steps."""
    return any(moment.step in steps for moment in play.stage.struck)


def first_words(answers: Iterator[str]) -> str | None:
    """The first answer that tells of a breach; "" if none does; None if there is no answer."""
    asked = None
    for words in answers:
        if words:
            return words
        asked = ""
    return asked


# The judges ---------------------------------------------------------------------------------------


@decided(
    "complete",
    "After the commit all files of one committed attempt of each task are visible, byte for byte.",
)
def complete(play: Play) -> str | None:
    return first_words(missing(play, view, job) for job, view in told(play, "committed"))


@decided("exclusive", "After the commit nothing else of the job is visible, of whatever attempt.")
def exclusive(play: Play) -> str | None:
    return first_words(surplus(play, view, job) for job, view in told(play, "committed"))


@decided("concurrent", "Tasks that write at the same time give what they give one after the other.")
def concurrent(play: Play) -> str | None:
    if len(play.tasks) < 2:
        return None
    return first_words(inexact(play, view, job) for job, view in told(play, "committed"))


@decided("abortable", "When a job is said to be aborted, none of its files is visible.")
def abortable(play: Play) -> str | None:
    return first_words(any_of(view, job) for job, view in told(play, "aborted"))


@decided(
    "continuity of correctness",
    "Once it is said how a job ended, no late process of it changes what is visible.",
)
def continuity(play: Play) -> str | None:
    def later() -> Iterator[str]:
        for one in play.told:
            if not one.outcome:
                continue
            then = found(view_after(play, one.after), one.job)
            for moment in play.stage.moments[one.after :]:
                if one.job in moment.process:
                    now = found(moment.view, one.job)
                    yield _changed(one.job, then, now, f"{moment.process}: {moment.request}")

    return first_words(later())


def _changed(
    job: str, then: dict[AttemptName, set[str]], now: dict[AttemptName, set[str]], by: str
) -> str:
    for name in sorted(then.keys() | now.keys()):
        before, after = then.get(name, set()), now.get(name, set())
        if before != after:
            what = "appears" if after - before else "disappears"
            files = ", ".join(sorted(before ^ after))
            return f"{job} had ended, and {files} of attempt {name.number} {what} ({by})"
    return ""


@decided(
    "task commit atomic",
    "In the end all files of one attempt of a task are visible, or none; never a mixture.",
)
def task_atomic(play: Play) -> str | None:
    if not struck_in(play, "write", "commit task"):
        return None
    return first_words(_parts_of_attempts(play, view, job) for job, view in _ends(play))


def _parts_of_attempts(play: Play, view: View, job: str) -> str:
    there = found(view, job)
    for name, files in sorted(there.items()):
        lacks = play.wrote[name] - files
        if lacks and len({other for other in there if other.task == name.task}) == 1:
            return f"{job}: of attempt {name.number} of task {name.task} only {', '.join(files)}"
    return surplus(play, view, job)


def _ends(play: Play) -> Iterator[tuple[str, View]]:
    view = play.stage.moments[-1].view
    for job in play.jobs:
        yield job, view


@decided(
    "job commit atomic",
    "At each moment a reader finds all files that the job publishes, or none.",
)
def job_atomic(play: Play) -> str | None:
    def moments() -> Iterator[str]:
        for job in play.jobs:
            for moment in play.stage.moments:
                some = any_of(moment.view, job)
                if some:
                    lacks = inexact(play, moment.view, job)
                    yield f"{some} and the rest is not ({moment.request})" if lacks else ""

    return first_words(moments())


@decided(
    "job commit repeatable",
    "Another process may call the commit again, wherever it stopped, and exactly the job's "
    "files are visible.",
)
def repeatable(play: Play) -> str | None:
    replays = [one for one in play.told if one.by == "replay"]
    if play.blocked:
        return play.blocked[0]
    if not replays:
        return None
    return first_words(inexact(play, view, job) for job, view in _ends(play))


@decided(
    "job commit recoverable",
    "A process that knows the destination and the job's name ends it after the driver's "
    "death, and says truly: committed, exactly its files; or aborted, none.",
)
def recoverable(play: Play) -> str | None:
    if not struck_in(play, "commit job"):
        return None
    if play.blocked:
        return play.blocked[0]
    end = play.stage.moments[-1].view

    def outcomes() -> Iterator[str]:
        for one in play.told:
            if one.by == "recover":
                yield untrue(play, one, view_after(play, one.after))
        for one in play.told:  # when all is over, whoever has told something was right
            yield untrue(play, one, end)

    return first_words(outcomes())


@decided("non-blocking", "A process that stops for ever keeps nobody else from going on.")
def non_blocking(play: Play) -> str | None:
    if not play.stage.struck:
        return None
    return play.blocked[0] if play.blocked else ""


@decided(
    "concurrent jobs",
    "Two jobs in one directory at the same time both end as if they were alone.",
)
def concurrent_jobs(play: Play) -> str | None:
    if len(play.jobs) < 2:
        return None
    if play.blocked:
        return play.blocked[0]
    view = play.stage.moments[-1].view

    return first_words(untrue(play, one, view) for one in play.told)


@decided(
    "nothing lost on failure",
    "Whatever fails, a reader finds all the data from before the job, or, if the job replaces "
    "it, all the new data.",
)
def nothing_lost(play: Play) -> str | None:
    job = next(iter(play.jobs.values()), None)
    if job is None or not play.stage.struck:
        return None

    def moments() -> Iterator[str]:
        for moment in play.stage.moments:
            yield _old_or_new(play, moment.view, job, moment.request)
        if any(one.outcome == "aborted" for one in play.told):
            yield lost(play.stage.moments[-1].view)

    return first_words(moments())


def _old_or_new(play: Play, view: View, job: JobPlayed, when: str) -> str:
    gone = lost(view)
    if not gone:
        return ""
    if not job.replace:
        return f"{gone}, of a job that only adds ({when})"
    lacks = inexact(play, view, job.name) if any_of(view, job.name) else "nothing new is there"
    return f"{gone}, and {lacks} ({when})" if lacks else ""


@decided("invisible before the commit", "Nothing of a job is visible before its commit is called.")
def invisible(play: Play) -> str | None:
    def moments() -> Iterator[str]:
        for job in play.jobs:
            for moment in play.stage.moments:
                if moment.step == "commit job" and job in moment.process:
                    break
                some = any_of(moment.view, job)
                yield f"{some} before the job commits ({moment.request})" if some else ""

    return first_words(moments())
