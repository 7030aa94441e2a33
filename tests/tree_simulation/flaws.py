"""The rules of jobs of renames, each with a way to take it away: what each checker catches.

A checker that nothing can break proves nothing. `caught` runs schedules without one rule until a
promise of those that are named breaks. The patches live here only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any
from unittest.mock import patch

from magic_committer.commit import outcome
from magic_committer.committers.classic import V1Committer
from magic_committer.committers.classic import job_commit as classic_commit
from magic_committer.committers.classic.attempt import ClassicAttempt, V2Attempt
from magic_committer.committers.classic.job_commit import ClassicJobCommit, V1JobCommit
from magic_committer.committers.manifest import (
    gather,
    job_commit,
    publish,
    records,
    setup,
    undo,
)
from magic_committer.committers.manifest.attempt import TreeAttempt
from magic_committer.committers.manifest.job_commit import TreeJobCommit
from magic_committer.errors import NotFound, PermissionDenied, Unanswered
from magic_committer.file_trees.renaming import SourceLost, rename_once
from magic_committer.maintenance import trees
from magic_committer.protocol.record import State
from tests.tree_simulation.tally import quietly
from tests.tree_simulation.truth import Violation

Replacement = tuple[Any, str, Any]


@dataclass(frozen=True)
class Flaw:
    """A rule that is taken away.

    Attributes:
        rule: in words. promise: what breaks, and a piece of what the checker says: so another
            checker does not stand for it. seeds_max: within how many seeds.
    """

    rule: str
    promise: str
    says: str
    seeds_max: int
    replacements: Callable[[], list[Replacement]]

    @contextmanager
    def removed(self) -> Iterator[None]:
        """The library without the rule."""
        with ExitStack() as stack:
            for target, name, value in self.replacements():
                put: AbstractContextManager[Any] = patch.object(target, name, value)
                stack.enter_context(put)
            yield


def caught(flaw: Flaw, first: int = 0, last: int | None = None) -> tuple[int, Violation] | None:
    """The first seed that shows a flaw, and how; None: none does, from the first to before the
    last: as many as the flaw allows."""
    with flaw.removed():
        for result in quietly(first, flaw.seeds_max if last is None else last):
            for violation in result.violations:
                if "TypeError" in violation.what or "AttributeError" in violation.what:
                    raise AssertionError(f"what stands for {flaw.rule!r} fails: {violation}")
                if violation.promise == flaw.promise and flaw.says in violation.what:
                    return result.seed, violation
    return None


def _nothing(*_: Any, **__: Any) -> None:
    return None


# What is told -------------------------------------------------------------------------------------


def _refused(parts: Any, record: Any, why: Any) -> Any:
    return PermissionDenied("it was refused", operation="create")


def _refused_look(parts: Any, job_id: str, error: Any) -> Any:
    return PermissionDenied("it was refused", operation="read")


def _says_committed(dest: str, record: Any) -> Any:
    if record.state is State.REVERTING:
        return outcome.ended(dest, record.id, State.COMMITTING, "committed")
    return outcome.ended_by_record(dest, record)


def _knows_nothing() -> list[Replacement]:
    real = TreeJobCommit._obey

    def obey(self: Any, seen: Any) -> Any:
        if seen is not None and seen.record.state is State.CLOSED:
            raise outcome.unknown(self.job)
        return real(self, seen)

    return [(TreeJobCommit, "_obey", obey)]


def _told_as_committing(self: Any, seen: Any, what: str, error: Any) -> Any:
    return outcome.incomplete(self.job, what, error)


def _aborts_what_commits() -> list[Replacement]:
    real = TreeJobCommit._abandon

    def abandon(self: Any, seen: Any, *, may_remove: bool) -> Any:
        if seen.record.state is State.COMMITTING:
            return self._report("aborted", State.CLOSED)
        return real(self, seen, may_remove=may_remove)

    return [(TreeJobCommit, "_abandon", abandon)]


def _every_job_runs() -> list[Replacement]:
    real = trees.inspect_paths

    def inspect_paths(parts: Any, paths: Any, dead_after: float) -> Any:
        return replace(real(parts, paths, dead_after), state="running", outcome="")

    return [(trees, "inspect_paths", inspect_paths)]


def _no_answer_is_a_loss() -> list[Replacement]:

    def renames(*args: Any, **named: Any) -> Any:
        try:
            return rename_once(*args, **named)
        except Unanswered as error:
            raise SourceLost("it is gone", operation="rename") from error

    return [(publish, "rename_once", renames)]


# Data ---------------------------------------------------------------------------------------------


def _place_first(parts: Any, paths: Any, file: Any, waiting: str, visible: str) -> None:
    publish.take_away(parts, paths, file, visible)
    try:
        publish.move(parts, paths, file.source(paths), publish.aside_of(waiting, file))
    except NotFound:
        return


def _takes_blindly(parts: Any, paths: Any, file: Any, trash: str) -> bool:
    aside = publish.aside_of(trash, file)
    if not publish.is_it(parts.tree.stat(file.name), file):
        return False
    try:
        publish.move(parts, paths, file.name, aside)
    except NotFound:
        return False
    parts.tree.remove(aside)
    return True


def _deletes_first() -> list[Replacement]:
    real = publish.publish_all

    def publish_all(parts: Any, paths: Any, plan: Any, *args: Any, **named: Any) -> Any:
        publish.delete_replaced(parts, paths, plan, ())
        return real(parts, paths, plan, *args, **named)

    return [(job_commit, "publish_all", publish_all)]


def _lists_once(parts: Any, job: Any, partitions: Any) -> list[Any]:
    return []


def _first_only(parts: Any, paths: Any) -> Iterator[Any]:
    return islice(real_listed(parts, paths), 1)


def _all_but_first(paths: Any, wanted: Any, found: Any) -> Iterator[Any]:
    return islice(real_named(paths, wanted, found), 1, None)


real_listed, real_named = gather._listed, gather._named


def _merges_all(self: Any, found: Any) -> None:
    names = [one.name for one in self._left()]
    if not classic_commit._is_there(self.parts, self.classic.merging):
        self._begin_merge()
    for name in names:
        classic_commit.merge(self.parts, self.classic.merged(name), "", set())


def _publishes_late(self: Any) -> None:
    """The last file is left where it is."""
    files, self._files = self._files, self._files[:-1]
    try:
        real_publish(self)
    finally:
        self._files = files


real_publish = V2Attempt._publish


FLAWS = (
    Flaw("a swap without an answer is no refusal", "I10", "a verb of that very call", 3000,
         lambda: [(records, "_unclear", _refused)]),
    Flaw("a look that fails after a swap is no refusal", "I10", "a verb of that very call", 3000,
         lambda: [(records, "_unread", _refused_look)]),
    Flaw("at Ctrl-C nothing is said that was not seen", "I10", "says", 3000,
         lambda: [(job_commit, "unread", outcome.undecided)]),
    Flaw("of a job that is being reverted some may be visible", "I10", "are visible", 1000,
         lambda: [(outcome, "UNDOING", outcome.HINTS["reverted"])]),
    Flaw("no answer is older than its last look", "I10", "says it is committing", 2000,
         lambda: [(job_commit, "ended_by_record", _says_committed)]),
    Flaw("an error says how far the record is", "I10", "says it is committing", 3000,
         lambda: [(TreeJobCommit, "_incomplete", _told_as_committing)]),
    Flaw("a decided job is not called aborted", "I10", "says aborted", 1000, _aborts_what_commits),
    Flaw("what can be told is told", "I10", "cannot tell", 1000, _knows_nothing),
    Flaw("a look tells the state", "I10", "says it is running", 300, _every_job_runs),
    Flaw("what waits is not unresolved", "I10", "calls unresolved", 1000, _no_answer_is_a_loss),
    Flaw("who ends a classic job says what stays", "I10", "does not say that", 1000,
         lambda: [(ClassicJobCommit, "_stays", lambda self: "")]),
    Flaw("a late classic attempt is told what stays", "I10", "are visible", 1000,
         lambda: [(ClassicAttempt, "_late", TreeAttempt._late)]),
    Flaw("every task is taken that has committed", "I2", "leaves out", 300,
         lambda: [(gather, "_listed", _first_only), (gather, "expected", _nothing)]),
    Flaw("every result is taken that was handed over", "I2", "is committed without", 300,
         lambda: [(gather, "_named", _all_but_first), (gather, "expected", _nothing)]),
    Flaw("old data goes before the end", "I8", "are not replaced", 300,
         lambda: [(job_commit, "delete_replaced", lambda *_: {})]),
    Flaw("complete, then delete", "I6", "takes", 300, _deletes_first),
    Flaw("an undo uses the source up first", "I3", "visible", 3000,
         lambda: [(undo, "_undo", _place_first)]),
    Flaw("what was taken is looked at", "I6", "is lost", 6000,
         lambda: [(publish, "take_away", _takes_blindly)]),
    Flaw("mode fail writes over nothing", "I6", "writes over", 3000,
         lambda: [(job_commit, "FAILING", frozenset())]),
    Flaw("set up, then look", "I6", "publish at once", 3000,
         lambda: [(setup, "refuse_rivals", _nothing)]),
    Flaw("mode fail looks before the decision", "I6", "is decided beside", 3000,
         lambda: [(gather, "refuse_data", _nothing)]),
    Flaw("a replace replaces what is there", "I2", "does not replace", 300,
         lambda: [(gather, "to_be_replaced", _lists_once)]),
    Flaw("the marker of a later job stays", "I6", "_SUCCESS was taken away", 6000,
         lambda: [(publish, "may_replace_marker", lambda *_: True)]),
    Flaw("a directory without a record is taken by a create", "I5", "and it is running", 6000,
         lambda: [(records, "take_unrecorded", lambda *_: True)]),
    Flaw("nothing is left", "I4", "left after the last cleanup", 300,
         lambda: [(undo, "remove_looking", _nothing), (trees, "remove_looking", _nothing)]),
    Flaw("v1 shows nothing before the merge", "I1", "before the merge", 300,
         lambda: [(V1Committer, "attempt_class", V2Attempt)]),
    Flaw("v1 merges what the driver accepted", "I2", "nobody accepted", 2000,
         lambda: [(V1JobCommit, "_publish_tasks", _merges_all)]),
    Flaw("v1 looks before its merge in mode fail", "I6", "an older file", 6000,
         lambda: [(classic_commit, "refuse_data", _nothing)]),
    Flaw("v2 looks at its start in mode fail", "I6", "an older file", 1000,
         lambda: [(setup, "refuse_data", _nothing)]),
    Flaw("v2 tells a task that all is visible", "I2", "were not visible", 300,
         lambda: [(V2Attempt, "_publish", _publishes_late)]),
)  # fmt: skip
"""Each with the checker that sees it."""

NOT_SEEN_HERE = {
    "a forgotten job is not decided": "a driver would have to pause between its last read and its"
    " create, where directories are not real, until a cleanup forgets the job",
    "an id is freed by who has it": "two cleanups and a new job would have to meet at two verbs",
    "a committed attempt is not undone": "an attempt is undone here only if its commit failed, and"
    " then the driver finds its files gone and refuses the job",
    "v1 puts back what a second attempt had moved": "a merge would have to begin between two"
    " renames: seen once in 50,000 schedules",
}
"""Rules that these schedules do not show, and why. tests/promises forces each of them."""
