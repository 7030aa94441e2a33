"""The properties by which committers are compared, one sentence and one judge each.

The first five are the requirements of Hadoop's commit protocol, as its documentation of the
manifest committer and the paper *A Zero-Rename Committer* word them. The others are what the paper
leaves out on purpose, or asks of engines instead, and what operators ask for. Everywhere *visible*
means: found by a reader of the destination, with the reader that the committer asks for
(`play.Subject.read`).

A judge reads what happened in one play. It gives the words of what broke, or "" where the property
held, for each attempt of the play to break it. So whoever counts the plays with an answer knows how
often the property could have failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.properties.play import AttemptName, JobPlayed, Play, Told, old_files
from tests.properties.stage import View

Judge = Callable[[Play], Iterator[str]]


class Property(NamedTuple):
    """One property: its row in the table, its definition in one sentence, its judge."""

    name: str
    says: str
    judge: Callable[[Play], str | None]


PROPERTIES: list[Property] = []


def decided(name: str) -> Callable[[Judge], Judge]:
    """Enter a property that a judge decides, whose docstring says it: by the first answer that
    tells of a breach; "" if none does; None if there is no answer."""

    def enter(judge: Judge) -> Judge:
        def decide(play: Play) -> str | None:
            asked: str | None = None
            for asked in judge(play):
                if asked:
                    break
            return asked

        PROPERTIES.append(Property(name, " ".join((judge.__doc__ or "").split()), decide))
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
    gone = [name for name, body in old_files().items() if body not in bodies]
    return f"{', '.join(gone)} is gone" if gone else ""


def untrue(play: Play, one: Told, view: View) -> str:
    """ "" if what was told of a job is what a reader finds."""
    if not one.outcome:
        return f"{one.job}: nobody can tell what became of it"
    wrong = inexact(play, view, one.job) if one.outcome == "committed" else any_of(view, one.job)
    return f"the {one.by} told that {one.job} is {one.outcome}; {wrong}" if wrong else ""


def view_after(play: Play, count: int) -> View:
    return play.moments[count - 1].view if count else {}


def told(play: Play, outcome: str) -> Iterator[tuple[str, View]]:
    """Each job of which somebody was told that outcome, and what a reader found then."""
    for one in play.told:
        if one.outcome == outcome:
            yield one.job, view_after(play, one.after)


def struck_in(play: Play, *steps: str) -> bool:
    """Whether a cut struck a process in one of these steps."""
    return any(moment.step in steps for moment in play.struck)


# The judges ---------------------------------------------------------------------------------------


@decided("complete")
def complete(play: Play) -> Iterator[str]:
    """After the commit all files of one committed attempt of each task are visible, byte for
    byte."""
    for job, view in told(play, "committed"):
        yield missing(play, view, job)


@decided("exclusive")
def exclusive(play: Play) -> Iterator[str]:
    """After the commit nothing else of the job is visible, of whatever attempt."""
    for job, view in told(play, "committed"):
        yield surplus(play, view, job)


@decided("concurrent")
def concurrent(play: Play) -> Iterator[str]:
    """Tasks that write at the same time give what they give one after the other."""
    for job, view in told(play, "committed") if len(play.tasks) > 1 else ():
        yield inexact(play, view, job)


@decided("abortable")
def abortable(play: Play) -> Iterator[str]:
    """When a job is said to be aborted, none of its files is visible."""
    for job, view in told(play, "aborted"):
        yield any_of(view, job)


@decided("continuity of correctness")
def continuity(play: Play) -> Iterator[str]:
    """Once it is said how a job ended, no late process of it changes what is visible."""
    for one in play.told:
        if not one.outcome:
            continue
        then = found(view_after(play, one.after), one.job)
        for moment in play.moments[one.after :]:
            if one.job in moment.process:
                now = found(moment.view, one.job)
                yield _changed(one.job, then, now, f"{moment.process}: {moment.request}")


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


@decided("task commit atomic")
def task_atomic(play: Play) -> Iterator[str]:
    """In the end all files of one attempt of a task are visible, or none; never a mixture."""
    if struck_in(play, "write", "commit task"):
        for job in play.jobs:
            yield _parts_of_attempts(play, play.moments[-1].view, job)


def _parts_of_attempts(play: Play, view: View, job: str) -> str:
    there = found(view, job)
    for name, files in sorted(there.items()):
        lacks = play.wrote[name] - files
        if lacks and len({other for other in there if other.task == name.task}) == 1:
            return f"{job}: of attempt {name.number} of task {name.task} only {', '.join(files)}"
    return surplus(play, view, job)


@decided("job commit atomic")
def job_atomic(play: Play) -> Iterator[str]:
    """At each moment a reader finds all files that the job publishes, or none."""
    for job in play.jobs:
        for moment in play.moments:
            if some := any_of(moment.view, job):
                lacks = inexact(play, moment.view, job)
                yield f"{some} and the rest is not ({moment.request})" if lacks else ""


@decided("job commit repeatable")
def repeatable(play: Play) -> Iterator[str]:
    """Another process may call the commit again, wherever it stopped, and exactly the job's
    files are visible."""
    yield from play.blocked
    if any(one.by == "replay" for one in play.told):
        for job in play.jobs:
            yield inexact(play, play.moments[-1].view, job)


@decided("job commit recoverable")
def recoverable(play: Play) -> Iterator[str]:
    """A process that knows the destination and the job's name ends it after the driver's
    death, and says truly: committed, exactly its files; or aborted, none."""
    if not struck_in(play, "commit job"):
        return
    yield from play.blocked
    for one in play.told:
        if one.by == "recover":
            yield untrue(play, one, view_after(play, one.after))
    for one in play.told:  # when all is over, whoever has told something was right
        yield untrue(play, one, play.moments[-1].view)


@decided("non-blocking")
def non_blocking(play: Play) -> Iterator[str]:
    """A process that stops for ever keeps nobody else from going on."""
    if play.struck:
        yield from play.blocked or [""]


@decided("concurrent jobs")
def concurrent_jobs(play: Play) -> Iterator[str]:
    """Two jobs in one directory at the same time both end as if they were alone."""
    if len(play.jobs) > 1:
        yield from play.blocked
        for one in play.told:
            yield untrue(play, one, play.moments[-1].view)


@decided("nothing lost on failure")
def nothing_lost(play: Play) -> Iterator[str]:
    """Whatever fails, a reader finds all the data from before the job, or, if the job replaces
    it, all the new data."""
    job = next(iter(play.jobs.values()), None)
    if job is None or not play.struck:
        return
    for moment in play.moments:
        yield _old_or_new(play, moment.view, job, moment.request)
    if any(one.outcome == "aborted" for one in play.told):
        yield lost(play.moments[-1].view)


def _old_or_new(play: Play, view: View, job: JobPlayed, when: str) -> str:
    gone = lost(view)
    if not gone:
        return ""
    if not job.replace:
        return f"{gone}, of a job that only adds ({when})"
    lacks = inexact(play, view, job.name) if any_of(view, job.name) else "nothing new is there"
    return f"{gone}, and {lacks} ({when})" if lacks else ""


@decided("invisible before the commit")
def invisible(play: Play) -> Iterator[str]:
    """Nothing of a job is visible before its commit is called."""
    for job in play.jobs:
        for moment in play.moments:
            if moment.step == "commit job" and job in moment.process:
                break
            some = any_of(moment.view, job)
            yield f"{some} before the job commits ({moment.request})" if some else ""
