"""The operator's calls for jobs of renames: look at them, finish, abort, give up, clean up.

They take and give what those for jobs on S3 do; ``maintenance.api`` chooses by the destination's
scheme. Invariants:

* Nothing is guessed from what is visible: the record alone says what to do, and every step that
  changes it is a swap. So each call may run beside the driver, beside another call, and again.
* A job's age is the newest change of anything in its directory, by the file system's stamps and
  this machine's clock. Where the two differ much, pass a greater ``dead_after``.
* Only what lies in ``_temporary`` under a name of this library's is ever removed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import orjson

from magic_committer._quantities import age_words, counted, counted_are
from magic_committer.commit.batches import publish_batch
from magic_committer.commit.outcome import dead, outcome_of
from magic_committer.committers.manifest import ManifestCommitter, records
from magic_committer.committers.manifest.gather import gather
from magic_committer.committers.manifest.job_commit import TreeJobCommit
from magic_committer.committers.manifest.ledgers import TreeLedgers
from magic_committer.committers.manifest.names import (
    CLAIM_PREFIX,
    ENDED_PREFIX,
    MANIFEST_SUFFIX,
    RESULT_SUFFIX,
    SPARE_SUFFIX,
    TEMPORARY,
    TreeJobPaths,
)
from magic_committer.committers.manifest.parts import Parts
from magic_committer.committers.manifest.plan import PlannedFile, load_plan
from magic_committer.committers.manifest.publish import is_it, read_marker
from magic_committer.committers.manifest.setup import attached
from magic_committer.committers.manifest.task_manifest import (
    MANIFEST_BYTES_MAX,
    TaskManifest,
    decode_manifest,
)
from magic_committer.committers.manifest.undo import (
    newest_change,
    remove_job,
    remove_looking,
    sweep,
)
from magic_committer.committers.trees import tree_committer_of
from magic_committer.errors import (
    FormatError,
    JobNotFound,
    JobNotRunning,
    JobTooYoung,
    MagicError,
    NotFound,
    OptionError,
    OutcomeUnknown,
    StoreError,
)
from magic_committer.file_trees.base import CONTROL_BYTES_MAX, TreeEntry
from magic_committer.maintenance.cleanup import Limits
from magic_committer.maintenance.giving_up import GivenUp
from magic_committer.maintenance.inspect import would_do
from magic_committer.maintenance.reports import (
    NAMED_MAX,
    CleanupReport,
    FoundJob,
    Recovery,
    age_of,
)
from magic_committer.protocol.record import JobReport, State
from magic_committer.protocol.rules import Step, next_step
from magic_committer.remedy import Remedy

LOOKS_MAX = 4
"""How often the record is read again because another process has moved it on."""

_ENDED = re.compile(rf"{ENDED_PREFIX}[0-9a-f]{{32}}_[0-9a-f]{{32}}")
_SPARE = re.compile(rf"{CLAIM_PREFIX}.+\.json\.[0-9a-f]{{32}}{re.escape(SPARE_SUFFIX)}")


# Looking ------------------------------------------------------------------------------------------


def inspect_tree(parts: Parts, dead_after: float) -> Iterator[FoundJob]:
    """Every job of this library under a destination; see `magic_committer.inspect`."""
    for paths in list(records.every_job(parts)):
        yield inspect_paths(parts, paths, dead_after)


def inspect_tree_job(parts: Parts, job_id: str, dead_after: float) -> FoundJob | None:
    """One job, by its id. None if there is none with that id."""
    paths = records.find(parts, job_id)
    if paths is None or parts.tree.stat(paths.directory) is None:
        return None
    return inspect_paths(parts, paths, dead_after)


def inspect_paths(parts: Parts, paths: TreeJobPaths, dead_after: float) -> FoundJob:
    """One job, by its directory."""
    found = FoundJob(paths.uuid, parts.tree.url, "litter", directory=paths.directory)
    try:
        seen = records.read(parts, paths)
    except FormatError as error:
        return replace(
            found,
            kind="unreadable",
            problem=str(error),
            age=_age(parts, paths),
            would="nothing: a person has to look",
        )
    age = _age(parts, paths)
    objects = sum(1 for _ in parts.tree.list(paths.directory))
    if seen is None:
        return replace(found, age=age, objects=objects, would="nothing: cleanup removes it")
    record, job = seen.record, attached(parts, seen)
    found = replace(
        found,
        id=records.id_of(parts, record),
        kind="ours",
        uuid=record.uuid,
        state=str(record.state),
        outcome=outcome_of(record),
        mode=record.terms.mode,
        accept=record.terms.accept,
        track=record.terms.track,
        given_id=record.given_id,
        started=record.started,
        age=age,
        objects=objects,
        would=_would(seen, age, dead_after),
        directory=paths.manifests,
        query=record.batch.query if record.batch is not None else "",
        batch=record.batch.number if record.batch is not None else None,
        checkpoint=record.checkpoint,
    )
    if record.decider is not None:
        decider = record.decider
        found = replace(found, role=decider.role, host=decider.host, pid=decider.pid)
    elif record.state is State.RUNNING:
        role, host, pid = _sign(parts, paths)
        found = replace(found, role=role, host=host, pid=pid)
    try:
        if record.plan is not None and record.state is not State.CLOSED:
            return _with_plan(parts, paths, seen, found)
        if record.state is State.RUNNING and tree_committer_of(job) is not ManifestCommitter:
            look = _committing(parts, seen).look()
            return replace(found, tasks=len(look.tasks), files=look.files, bytes=look.bytes)
        if record.state is State.RUNNING and record.terms.accept == "results":
            saved = [(one.task, len(one.files), one.bytes) for one in manifests(parts, paths)]
            names = {task for task, _, _ in saved}
            files, sizes = sum(many for _, many, _ in saved), sum(size for _, _, size in saved)
            return replace(found, tasks=len(names), files=files, bytes=sizes)
        if record.state is State.RUNNING:
            left = gather(parts, job, None, lambda _: None)
            problem = left.problems[0] if left.problems else ""
            return replace(
                found, tasks=len(left.tasks), files=left.files, bytes=left.bytes, problem=problem
            )
    except (NotFound, FormatError) as error:
        return replace(found, problem=str(error))
    return found


def _age(parts: Parts, paths: TreeJobPaths) -> float:
    newest = newest_change(parts, paths)
    return age_of(parts.clock.now(), newest) if newest else 0.0


def _sign(parts: Parts, paths: TreeJobPaths) -> tuple[str, str, int]:
    """Who last gave a sign of life: role, host, process; nothing if nobody did."""
    try:
        sign = orjson.loads(parts.tree.read(paths.alive, CONTROL_BYTES_MAX))
        return str(sign["role"]), str(sign["host"]), int(sign["pid"])
    except (StoreError, orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return "", "", 0


def manifests(parts: Parts, paths: TreeJobPaths) -> Iterator[TaskManifest]:
    """What the tasks of a job have committed: a manifest for each task, or for each attempt of a
    job that takes results. One that cannot be read is passed over."""
    for entry in parts.tree.list(paths.manifests):
        if not entry.name.endswith((MANIFEST_SUFFIX, RESULT_SUFFIX)):
            continue
        with suppress(NotFound, FormatError):
            data = parts.tree.read(entry.path, MANIFEST_BYTES_MAX)
            yield decode_manifest(data, parts.tree.url, paths.tasks, entry.path)


@dataclass(slots=True)
class _HowFar:
    waiting: int = 0
    missing: list[str] = field(default_factory=list)


def _with_plan(
    parts: Parts, paths: TreeJobPaths, seen: records.SeenVersion, found: FoundJob
) -> FoundJob:
    """What a decided job publishes, and how far it is."""
    assert seen.record.plan is not None
    plan = load_plan(parts.tree, seen.record.plan)
    totals = plan.totals
    found = replace(found, tasks=totals.tasks, files=totals.files, bytes=totals.bytes)
    if seen.record.state is not State.COMMITTING:
        return found
    progress = _progress(parts, paths, seen)
    would = f"rename {counted(progress.waiting, 'file')} of {totals.files:,}"
    if progress.missing:
        would += (
            f", then stop: {counted_are(len(progress.missing), 'file')} unresolved, for the source"
            " is gone, and the file there is another"
        )
    else:
        would += ", mark the destination, sweep and close the job"
    return replace(
        found,
        visible=totals.files - progress.waiting - len(progress.missing),
        missing=len(progress.missing),
        missing_keys=tuple(progress.missing[:NAMED_MAX]),
        would=would,
    )


def _progress(parts: Parts, paths: TreeJobPaths, seen: records.SeenVersion) -> _HowFar:
    assert seen.record.plan is not None
    plan, progress = load_plan(parts.tree, seen.record.plan), _HowFar()

    def look(file: PlannedFile) -> tuple[str, bool, bool]:
        waits = parts.tree.stat(file.source(paths)) is not None
        return file.name, waits, not waits and is_it(parts.tree.stat(file.name), file)

    for name, waits, visible in parts.each(look, plan.files()):
        progress.waiting += waits
        if not (waits or visible):
            progress.missing.append(name)
    return progress


def _would(seen: records.SeenVersion, age: float, dead_after: float) -> str:
    """What `recover` does with a record. Pure."""
    if seen.record.state is State.COMMITTING:
        return "rename its files into place, mark the destination, sweep and close the job"
    if seen.record.state is State.RUNNING and age >= dead_after:
        return "abort it: its files are removed, nothing of it becomes visible"
    if seen.record.state is State.REVERTING:
        return "undo it: remove its files, visible or not, sweep, close"
    return would_do(seen.record, age, dead_after)


# Ending -------------------------------------------------------------------------------------------


def recover_tree(
    parts: Parts,
    job_id: str,
    *,
    dead_after: float,
    accept: Collection[str] = (),
    dry_run: bool = False,
) -> Recovery:
    """Finish or undo one job; see `magic_committer.recover`. ``dead_after`` is in seconds."""
    if isinstance(accept, str):
        raise OptionError("accept is a list of names, not one name")
    found = ""
    last: MagicError | None = None
    for _ in range(LOOKS_MAX):
        seen = records.read_by_id(parts, job_id)
        if seen is None:
            return _absent(parts, job_id, found, dry_run)
        state = seen.record.state
        found = found or str(state)
        recovery = Recovery(
            job_id=job_id,
            dest=parts.tree.url,
            found=found,
            state=str(state),
            outcome=outcome_of(seen.record),
            did=_would(seen, 0.0, 0.0),
            uuid=seen.record.uuid,
            dry_run=dry_run,
        )
        if state is State.CLOSED:
            return recovery
        if state is State.RUNNING:
            _refuse_young(parts, seen, dead_after)
        if dry_run:
            return _planned(parts, seen, recovery, accept)
        try:
            report = _committing(parts, seen, accept).settle(state)
        except (JobNotRunning, OutcomeUnknown) as error:
            last = error  # another process moved it on: look again
            continue
        return replace(recovery, state=report.state, outcome=report.outcome, report=report)
    assert last is not None
    raise last


def abort_tree(parts: Parts, job_id: str, *, revert: bool) -> JobReport:
    """Abort or undo one job; see `magic_committer.abort`.

    Raises:
        JobNotFound: it has no record.
    """
    return _committing(parts, _found(parts, job_id)).abort(revert=revert)


def force_abort_tree(
    parts: Parts, job_id: str, *, dead_after: float, dry_run: bool = False
) -> GivenUp:
    """End a job that can be neither finished nor undone; see `magic_committer.force_abort`."""
    paths = records.find(parts, job_id)
    if paths is None or parts.tree.stat(paths.directory) is None:
        raise _not_found(parts, job_id)
    try:
        seen = records.read(parts, paths)
    except FormatError as error:
        _refuse_forced(parts, paths, job_id, dead_after, "its record cannot be read")
        return _give_up(parts, paths, job_id, "unreadable", str(error), dry_run)
    if seen is None:
        return GivenUp(job_id, parts.tree.url, str(State.ABSENT), str(State.ABSENT))
    if job_id not in (seen.record.id, seen.record.uuid):  # a forged claim
        raise _not_found(parts, job_id)
    state, outcome = seen.record.state, outcome_of(seen.record)
    if state is State.CLOSED:
        return GivenUp(job_id, parts.tree.url, str(state), str(state), outcome=outcome)
    if state is State.COMPLETED:
        _refuse_forced(parts, paths, job_id, dead_after, "its files are visible")
        why = "" if dry_run else _say_published(parts, seen)
        told = _give_up(parts, paths, job_id, str(state), why, dry_run)
        return replace(told, outcome="committed")
    if dry_run:
        return GivenUp(job_id, parts.tree.url, str(state), str(state), dry_run=True)
    try:
        report = _committing(parts, seen).abort(revert=True)
    except MagicError as error:
        now = records.read(parts, paths)  # its driver may live, and have moved it on
        if now is not None and now.record.state in (State.COMPLETED, State.CLOSED):
            return force_abort_tree(parts, job_id, dead_after=dead_after)
        if now is not None and now.record.state is State.COMMITTING:
            _refuse_forced(parts, paths, job_id, dead_after, "its files are being published")
        return _give_up(parts, paths, job_id, str(state), str(error), dry_run)
    return GivenUp(
        job_id, parts.tree.url, str(state), report.state, outcome=report.outcome, report=report
    )


def _say_published(parts: Parts, seen: records.SeenVersion) -> str:
    """Tell the query's ledger that the batch of a ``completed`` job is published: its files stay.
    Gives why that could not be done: the query may then publish the batch once more."""
    batch = seen.record.batch
    if batch is None:
        return ""
    try:
        return publish_batch(TreeLedgers(parts), parts.ids, attached(parts, seen), batch)
    except (StoreError, FormatError) as error:
        return f"the ledger does not say that {batch} is published: {error.message}"


def _give_up(
    parts: Parts, paths: TreeJobPaths, job_id: str, found: str, why: str, dry_run: bool
) -> GivenUp:
    visible = _visible(parts, paths)
    if not dry_run:
        remove_job(parts, paths)
    return GivenUp(
        job_id,
        parts.tree.url,
        found,
        found if dry_run else str(State.ABSENT),
        why=why,
        visible=tuple(visible[:NAMED_MAX]),
        visible_files=len(visible),
        dry_run=dry_run,
    )


def _visible(parts: Parts, paths: TreeJobPaths) -> list[str]:
    """The names of the job's files that are at their place, as far as its plan can be read."""
    try:
        seen = records.read(parts, paths)
        if seen is None or seen.record.plan is None:
            return []
        plan = load_plan(parts.tree, seen.record.plan)
        return [f.name for f in plan.files() if is_it(parts.tree.stat(f.name), f)]
    except (StoreError, FormatError):
        return []


def _refuse_forced(
    parts: Parts, paths: TreeJobPaths, job_id: str, dead_after: float, what: str
) -> None:
    age = _age(parts, paths)
    if age < dead_after:
        raise JobTooYoung(
            f"job {job_id!r} changed {age_words(age)} ago, and {what}: it may be alive",
            job_id=job_id,
            age=age,
            limit=dead_after,
            hint="Wait",
            remedies=(Remedy("recover", parts.tree.url, job_id, "finish it, if it can be"),),
        )


def _found(parts: Parts, job_id: str) -> records.SeenVersion:
    seen = records.read_by_id(parts, job_id)
    if seen is None:
        raise _not_found(parts, job_id)
    return seen


def _not_found(parts: Parts, job_id: str) -> JobNotFound:
    return JobNotFound(
        f"there is no job {job_id!r} under {parts.tree.url}",
        job_id=job_id,
        hint="It has ended, or it was never started",
    )


def _committing(
    parts: Parts, seen: records.SeenVersion, accept: Collection[str] = ()
) -> TreeJobCommit:
    job = replace(attached(parts, seen), undisturbed=False)
    return tree_committer_of(job).job_commit_class(parts, job, "recovery", accept)


def _refuse_young(parts: Parts, seen: records.SeenVersion, dead_after: float) -> None:
    age, job_id = _age(parts, seen.paths), seen.record.id
    if age < dead_after:
        raise JobTooYoung(
            f"job {job_id!r} is running, and changed {age_words(age)} ago: it may be alive, for"
            f" less than {age_words(dead_after)} have passed",
            job_id=job_id,
            age=age,
            limit=dead_after,
            hint="Wait",
            remedies=dead(parts.tree.url, job_id),
        )


def _planned(
    parts: Parts, seen: records.SeenVersion, recovery: Recovery, accept: Collection[str]
) -> Recovery:
    """What would be done, in more detail. Only reads."""
    if seen.record.state is not State.COMMITTING:
        return recovery
    progress = _progress(parts, seen.paths, seen)
    unresolved = tuple(name for name in progress.missing if name not in accept)
    found = inspect_paths(parts, seen.paths, 0.0)
    return replace(recovery, did=found.would, unresolved=unresolved[:NAMED_MAX])


def _absent(parts: Parts, job_id: str, found: str, dry_run: bool) -> Recovery:
    """The outcome without a record: "unknown", unless the marker tells. A drawn id is the UUID."""
    marker = read_marker(parts)
    committed = marker is not None and marker.uuid == job_id
    return Recovery(
        job_id=job_id,
        dest=parts.tree.url,
        found=found or str(State.ABSENT),
        state=str(State.ABSENT),
        outcome="committed" if committed else "",
        did="nothing: it has committed and is finished"
        if committed
        else "nothing: there is no record of it; it may have ended, either way, or never been",
        dry_run=dry_run,
    )


# Cleaning up --------------------------------------------------------------------------------------


class TreeCleaning:
    """One cleanup of one destination; see `magic_committer.cleanup`.

    Args:
        parts: the components.
        limits: from which ages things are removed.
        dry_run: change nothing.
    """

    def __init__(self, parts: Parts, limits: Limits, *, dry_run: bool) -> None:
        self._parts = parts
        self._limits = limits
        self._dry_run = dry_run
        self._recovered: list[Recovery] = []
        self._unfinished: list[Recovery] = []
        self._did: list[str] = []
        self._errors: list[str] = []
        self._left = self._objects = self._records = 0

    def run(self) -> CleanupReport:
        """Clean up. An error on one thing does not stop the others.

        Raises:
            StoreError: the jobs could not be listed.
        """
        for paths in list(records.every_job(self._parts)):
            self._trying(paths.directory, partial(self._job, paths))
        for entry in list(self._parts.tree.list(TEMPORARY)):
            if _ENDED.fullmatch(entry.name) and entry.kind == "directory":
                self._trying(entry.path, partial(self._remove, entry.path))
            if _SPARE.fullmatch(entry.name) and entry.kind == "file":
                self._trying(entry.path, partial(self._spare, entry))
        self._forget_claims()
        if not self._dry_run:
            self._parts.tree.remove_directory(TEMPORARY)  # if nothing is left in it
        return CleanupReport(
            dest=self._parts.tree.url,
            dry_run=self._dry_run,
            recovered=tuple(self._recovered),
            jobs_left=self._left,
            uploads_aborted=0,
            uploads_left=0,
            objects_deleted=self._objects,
            records_deleted=self._records,
            did=tuple(self._did[:NAMED_MAX]),
            errors=tuple(self._errors),
            unfinished=tuple(self._unfinished),
        )

    def _trying(self, what: str, do: Callable[[], None]) -> None:
        try:
            do()
        except MagicError as error:
            self._errors.append(f"{what}: {error}")

    def _job(self, paths: TreeJobPaths) -> None:
        limits = self._limits
        seen, age = records.read(self._parts, paths), _age(self._parts, paths)
        if seen is None:
            if age >= limits.leftover_after and self._take(paths):
                self._removed(paths.directory)
            else:
                self._left += 1
            return
        record = seen.record
        if record.state is State.CLOSED:
            if age >= (limits.forget_given_after if record.given_id else limits.forget_after):
                self._forget(paths, seen)
            return
        decided = next_step(record.state) is not Step.DECIDE
        if age < (limits.leftover_after if decided else limits.dead_after):
            self._left += 1
            return
        job_id = records.id_of(self._parts, record)
        planned = recover_tree(self._parts, job_id, dead_after=limits.dead_after, dry_run=True)
        if (
            decided
            and not limits.finish
            and next_step(record.state) in (Step.COMPLETE, Step.FINISH)
        ):
            self._unfinished.append(planned)
            return
        if not self._dry_run:
            try:
                planned = recover_tree(self._parts, job_id, dead_after=limits.dead_after)
            except JobTooYoung:
                self._left += 1
                return
        self._recovered.append(planned)
        self._did.append(f"job {record.id}: {planned.did}")

    def _take(self, paths: TreeJobPaths) -> bool:
        """Remove a directory without a record, and give whether it is nobody's. A driver may be
        paused just before it writes the record: only one of us creates version 1."""
        if self._dry_run:
            return True
        taken = records.take_unrecorded(self._parts, paths)
        if taken and self._parts.tree.promises.directories:
            remove_job(self._parts, paths)
        elif taken:  # our record goes last: what comes after it is of a job that starts there
            sweep(self._parts, paths)
            records.set_aside(self._parts, paths)
            self._parts.tree.remove_directory(paths.directory)
        return taken

    def _forget(self, paths: TreeJobPaths, seen: records.SeenVersion) -> None:
        job_id = records.id_of(self._parts, seen.record)
        if not self._dry_run:
            remove_job(self._parts, paths)
            if job_id != paths.uuid:
                records.forget_id(self._parts, job_id, paths.uuid)
        self._records += 1
        self._did.append(f"job {job_id}: delete its closed record")

    def _forget_claims(self) -> None:
        """Free the ids that were taken long ago, and whose jobs have no record any more."""
        for job_id, uuid, taken in list(records.every_claim(self._parts)):
            if age_of(self._parts.clock.now(), taken) < self._limits.forget_given_after:
                continue
            if self._parts.tree.stat(TreeJobPaths(uuid).directory) is None:
                if not self._dry_run:
                    records.forget_id(self._parts, job_id, uuid)
                self._records += 1
                self._did.append(f"id {job_id}: free it, its job is gone")

    def _remove(self, directory: str) -> None:
        if not self._dry_run:
            remove_looking(self._parts, directory)
        self._removed(directory)

    def _spare(self, entry: TreeEntry) -> None:
        """Remove what a process that was killed left beside a claim."""
        if age_of(self._parts.clock.now(), entry.modified) < self._limits.leftover_after:
            return
        if not self._dry_run:
            self._parts.tree.remove(entry.path)
        self._objects += 1
        self._did.append(f"remove {entry.path}, which is left of a process that was killed")

    def _removed(self, directory: str) -> None:
        self._objects += 1
        self._did.append(f"remove {directory}/, which is left of a job that has ended")
