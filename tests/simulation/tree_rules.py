"""The rules of jobs whose files wait on a file system, each with a way to take it away.

Most are the protocol's own (`rules`), seen once more where an upload is a file; the others are of
such jobs alone. The classic committers are not simulated: tests/properties cuts them at each
request, and tests/mutants takes their rules away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from magic_committer.commit import job_commit, prepare, records, sweep
from magic_committer.commit.job_commit import JobCommit
from magic_committer.errors import PermissionDenied
from magic_committer.maintenance import adopt
from magic_committer.protocol.record import State
from magic_committer.stores.tree import TreeStore
from tests.simulation.drawing import Focus
from tests.simulation.rule import Replacement, Rule

RENAMES = Focus(tree="renames")
FAILING = Focus(modes=("fail", "fail_partitions"), deeds=("write", "same"), tree="renames")
REPLACED = Focus(modes=("replace", "replace_partitions"), tree="renames")
ADOPTED = Focus(others=("adopter",), tree="renames")
UNREAD = Focus(fault="lost reply", target="swap record", tree="renames")
PROBED = Focus(modes=("fail",), fault="crash after", target="create_upload", tree="renames")


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _aborts_what_commits() -> list[Replacement]:
    real = JobCommit._abandon

    def abandon(self: Any, seen: Any, may_remove: bool) -> Any:
        if seen is not None and seen.record.state is State.COMMITTING:
            return self._report("aborted", State.CLOSED)
        return real(self, seen, may_remove)

    def abort(self: Any, *_: Any, **__: Any) -> Any:
        seen = records.read(self.runtime, self.job.paths.record)
        if seen is not None and seen.record.state is State.COMMITTING:
            return abandon(self, seen, False)
        return real_abort(self, *_, **__)

    real_abort = JobCommit.abort
    return [(JobCommit, "abort", abort)]


def _all_but_one() -> list[Replacement]:
    real = prepare.wanted_results

    def wanted(job: Any, results: Any) -> Any:
        found = real(job, results)
        return found[1:] if found else found

    return [(job_commit, "wanted_results", wanted), (job_commit, "expected", _nothing)]


def _refused_look(runtime: Any, key: str, job_id: str, why: Any) -> Any:
    raise PermissionDenied("it was refused", operation="get")


def _clears_all() -> list[Replacement]:
    real = TreeStore.clear

    def clear(self: Any, directory: str) -> int:
        files = real(self, directory)
        for job in self._tree.list("_temporary"):
            files += real(self, f"{job.path}/")
        return files

    return [(TreeStore, "clear", clear)]


RULES_OF_RENAMES = (
    Rule("a decided job is not called aborted", "an abort tells what was decided",
         ("I10",), 1000, _aborts_what_commits, RENAMES),
    Rule("a look that fails is no refusal", "what a swap came to is unknown if nobody can look",
         ("I10", "I2"), 3000, lambda: [(records, "_read_back", _refused_look)], UNREAD),
    Rule("every result is taken", "what was handed over is published",
         ("I2",), 300, _all_but_one, RENAMES),
    Rule("mode fail looks before the decision", "data that came while the job ran refuses it",
         ("I6",), 3000, lambda: [(prepare, "refuse_existing_data", _nothing)], FAILING),
    Rule("a replace replaces what is there", "the plan deletes what the listing shows",
         ("I2",), 500, lambda: [(prepare, "replaced", lambda *_: ((), None))], REPLACED),
    Rule("files of tasks go with their job", "the sweep removes the job's directory",
         ("I4",), 500, lambda: [(TreeStore, "clear", lambda self, directory: 0)], RENAMES),
    Rule("a job's own directory", "the sweep removes nothing of another job's",
         ("I2", "I6"), 500, _clears_all, RENAMES),
    Rule("uploads of a dead probe go, too", "the sweep looks for the uploads of its driver",
         ("I4",), 3000, lambda: [(sweep._Sweep, "abort_listed", _nothing)], PROBED),
    Rule("Hadoop's magic jobs stay Hadoop's", "on a file system none is adopted",
         ("I6",), 500, lambda: [(adopt, "is_tree", lambda bucket: False)], ADOPTED),
)  # fmt: skip

_SHARED = (
    "swap", "plan of one try †", "completed †", "fence", "repeatable Complete",
    "recovery by the plan", "marker of a later job †", "set up, then look †", "delete If-Match †",
    "complete, then delete", "fail by If-None-Match", "abort, HEAD, delete †",
    "messages, not listings", "the loser's plan", "withdraw by aborting", "a young job is left",
    "age of the directory", "over says the record", "ours by token", "announce",
    "look at others' plans", "spare the decided", "a refused swap is read back",
    "refused is not gone", "gone, then told", "a result names its set",
    "only a condition conflicts", "claim in the ledger †", "settle the claimant †",
    "done before finish †",
)  # fmt: skip


def on_trees(rules: Sequence[Rule]) -> list[Rule]:
    """The rules of the protocol that jobs of renames show, too: `--table` tries them there."""
    return [
        replace(rule, name=f"{rule.name}, on a tree", focus=replace(rule.focus, tree="renames"))
        for rule in rules
        if rule.name in _SHARED
    ]
