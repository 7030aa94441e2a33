"""The promises I1 to I10 of protocol.md, as checks on stores, steps, results and endings.

They know the protocol's states and what a file is, and nothing of how the actors go about it. What
a job has decided, and in what order, they take from the store's memory (`store.fate_of`,
`plan_of`), not from what the actors believe.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.model.store import (
    GHOST,
    SUCCESS,
    UPLOAD,
    Marker,
    Object,
    Plan,
    Record,
    Store,
    beside,
    directory_of,
    fate_of,
    is_data,
    is_record,
    plan_of,
)

UNDONE = ("aborting", "reverted", "closed aborted", "closed reverted")
"""States from which on nothing of a job is visible."""


@dataclass(frozen=True)
class Promised:
    """What a configuration promises more, or less, of its ``jobs`` (UUIDs). ``contested``: another
    program writes their keys: they need not stay visible, and a recovery may report a key as
    unresolved. ``once``: jobs of which only one may be decided to commit (runs of one batch).
    ``alone``: jobs of which no two may be visible in one directory, unless one deletes the other's
    files (all modes but ``append``). ``overwrites``: a job may write over another program's key.
    Not in mode ``fail``."""

    jobs: tuple[str, ...] = ()
    contested: bool = False
    once: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()
    overwrites: bool = True


File = tuple[str, str]
"""A key, and the token of what is to be there."""


def files_of(store: Store, uuid: str) -> tuple[File, ...]:
    """The files that were decided for a job."""
    plan = plan_of(store, uuid)
    return plan.files if plan else ()


def is_visible(store: Store, file: File) -> bool:
    held = store.get(file[0])
    return held is not None and held.body.token == file[1]


def hidden(store: Store, uuid: str) -> list[str]:
    """The decided files of a job that are not visible, but for those that a later job replaced."""
    missing = [file for file in files_of(store, uuid) if not is_visible(store, file)]
    if missing:
        replaced = set[File]()
        for key, plan in store.items():
            if key.startswith(f"{GHOST}plan ") and uuid not in beside(store, plan.uuid):
                replaced |= _named(plan)
        missing = [file for file in missing if file not in replaced]
    return [key for key, _ in missing]


def _named(plan: Plan) -> set[File]:
    """All files of jobs that a plan deletes."""
    return {(key, token) for key, _, token in plan.deletes if token}


def _goes(plan: Plan, key: str, held: Object) -> bool:
    """Whether a plan deletes an object."""
    etag = getattr(held.raw, "etag", "")
    return any(key == one and etag == other for one, other, _ in plan.deletes)


# After each step ----------------------------------------------------------------------------------


def of_step(promised: Promised, before: Store, after: Store, uuids: tuple[str, ...]) -> str:
    """What a request broke; ``uuids`` are the jobs of its sender."""
    return (
        _data(promised, after)
        or _comes_back(before, after)
        or _records(promised, before, after)
        or _beside_data(promised, before, after)
        or _whole_jobs(before, after, uuids)
        or _neighbours(promised, before, after, uuids)
        or _marker(promised, before, after)
    )


def _data(promised: Promised, store: Store) -> str:
    """I1, I2 (exclusive), I3, I9: of what is visible."""
    seen: dict[str, set[str]] = {}
    plans = [plan for uuid in promised.alone if (plan := plan_of(store, uuid)) is not None]
    for key, held in store.items():
        if not is_data(key) or not held.body.uuid:
            continue
        data = held.body
        fate = fate_of(store, data.uuid)
        if "committing" not in fate:
            return f"I1: {key} is visible, job {data.uuid} has not decided"
        if any(state in fate for state in UNDONE):
            return f"I3: {key} is visible, job {data.uuid} is undone"
        if data.content.endswith("cut"):
            return f"I9: {key} is visible, its input was cut short"
        if (key, data.token) not in files_of(store, data.uuid):
            return f"I2: {key} is visible ({data.content}), which was not decided"
        if not any(_goes(plan, key, held) for plan in plans):
            seen.setdefault(directory_of(key), set()).add(data.uuid)
    for uuids in seen.values():
        if len(both := uuids.intersection(promised.alone)) > 1:
            names = ", ".join(sorted(both))
            return f"I2: files of jobs that exclude each other are visible: {names}"
    return ""


def _comes_back(before: Store, after: Store) -> str:
    """I2: what a job publishes, it publishes before it is completed. From then on a file of it that
    is gone was taken away by somebody, and stays away."""
    for key, held in after.items():
        if not is_data(key) or not held.body.uuid:
            continue
        was = before.get(key)
        if was is not None and was.body == held.body:
            continue
        if "completed" in fate_of(before, held.body.uuid):
            return f"I2: {key} was taken away from job {held.body.uuid}, and comes back"
    return ""


def _beside_data(promised: Promised, before: Store, after: Store) -> str:
    """I2: what a job of the modes ``fail`` is decided upon: no data of those that it excludes."""
    for record in _decided_now(before, after):
        plan = plan_of(after, record.uuid)
        if plan is None or promised.contested or "fail" not in record.mode:
            continue
        for key, held in before.items():
            whose = held.body.uuid if is_data(key) else record.uuid
            if whose != record.uuid and _reaches(plan, key) and whose in ("", *promised.alone):
                return f"I2: job {record.uuid} ({record.mode}) is decided beside {key}"
    return ""


def _decided_now(before: Store, after: Store) -> Iterator[Record]:
    """The records that a step has moved to ``committing``."""
    for key, held in after.items():
        if is_record(held) and held.body.state == "committing" and before.get(key) != held:
            yield held.body


def _reaches(plan: Plan, key: str) -> bool:
    """Whether a key lies in what a plan replaces, or wants empty."""
    return not plan.partitions or directory_of(key) in plan.partitions


def _whole_jobs(before: Store, after: Store, uuids: tuple[str, ...]) -> str:
    """I2: who replaces another job's files replaces all of them that are in its reach, and only
    when that job was over before: all visible, all marked, and told."""
    gone = {
        (key, held.body.token): held.body.uuid
        for key, held in before.items()
        if key not in after and is_data(key) and held.body.uuid
    }
    if not gone:
        return ""
    plans = [plan for uuid in uuids if (plan := plan_of(before, uuid)) is not None]
    for plan in plans:
        named = _named(plan)
        for victim in {gone[one] for one in gone.keys() & named} - {plan.uuid}:
            if victim in beside(before, plan.uuid):
                return f"I2: files of job {victim} are deleted, which was not over"
            for file in files_of(before, victim):
                kept = file not in named and is_visible(before, file)
                if kept and _reaches(plan, file[0]):
                    return f"I2: a part of job {victim} is deleted, {file[0]} of it stays"
    return ""


def _records(promised: Promised, before: Store, after: Store) -> str:
    """I2, I5, I7: of what is decided."""
    committed = [uuid for uuid in promised.once if "committing" in fate_of(after, uuid)]
    if len(committed) > 1:
        return f"I2: one batch is decided by jobs {' and '.join(committed)}"
    for uuid in promised.jobs:
        fate = fate_of(after, uuid)
        if "running" in fate[1:]:
            return f"I5: job {uuid} was decided and is running again: {' '.join(fate)}"
        if promised.contested:
            continue
        completed = "completed" in fate and "completed" not in fate_of(before, uuid)
        if completed and (missing := hidden(after, uuid)):
            return f"I2: job {uuid} is completed without {missing[0]}"
        plan = plan_of(after, uuid)
        if plan is None or uuid in promised.alone:
            continue
        gone = [key for key, _, _ in plan.deletes if key not in after]
        if gone and (missing := hidden(after, uuid)):
            return f"I7: {gone[0]} is deleted, and what replaces it, {missing[0]}, is not there"
    return ""


def _neighbours(promised: Promised, before: Store, after: Store, uuids: tuple[str, ...]) -> str:
    """I6: nobody takes what is another's."""
    if not uuids:
        return ""
    for key, held in before.items():
        if not isinstance(held, Object) or isinstance(held.body, Marker):
            continue
        if held.body.uuid in uuids or after.get(key) == held:
            continue
        if key in after:
            if is_data(key) and not promised.overwrites:
                return f"I6: {key} of another program is overwritten"
            continue
        plans = [plan for uuid in uuids if (plan := plan_of(before, uuid)) is not None]
        if any(_goes(plan, key, held) for plan in plans):
            continue
        return f"I6: {key} of {held.body.uuid or 'another program'} is taken away"
    return ""


def _marker(promised: Promised, before: Store, after: Store) -> str:
    """I8: marked last, and never over the marker of a job that ran after ours. A marker that lands
    late may stand for a moment where a `replace` has just deleted the one that was there; the
    `replace` then writes its own (`when_quiet`)."""
    was, now = before.get(SUCCESS), after.get(SUCCESS)
    if now is None or now == was or not now.body.uuid:
        return ""
    uuid = now.body.uuid
    if not promised.contested and not now.late and (missing := hidden(after, uuid)):
        return f"I8: job {uuid} is marked without {missing[0]}"
    if was is not None and _ran_after(after, was.body.uuid, uuid, "completed"):
        return f"I8: job {uuid} marks over job {was.body.uuid}, which ran after it"
    return ""


def _ran_after(store: Store, later: str, earlier: str, ended: str) -> bool:
    """Whether a job was started when another had ended: was ``completed``, or ``finished``."""
    order = store.get(GHOST + "order", ())
    return (
        (later, "running") in order
        and (earlier, ended) in order
        and order.index((earlier, ended)) < order.index((later, "running"))
    )


# When an actor or all have ended ------------------------------------------------------------------


def of_result(promised: Promised, store: Store, result: str, uuids: tuple[str, ...]) -> str:
    """What an actor's last word broke."""
    if result == "robbed":
        return "I6: another program's upload was taken away"
    if result == "stuck" or (result == "unresolved" and not promised.contested):
        return f"I5: job {uuids[0]} can neither be finished nor undone"
    if result == "lost":
        return "I2: a file was closed well, and its attempt was committed before without it"
    if len(uuids) != 1:
        return ""
    uuid = uuids[0]
    fate = fate_of(store, uuid)
    if result == "committed":
        if "committing" not in fate:
            return f"I10: job {uuid} is reported committed: {' '.join(fate)}"
        if not promised.contested and (missing := hidden(store, uuid)):
            return f"I2: job {uuid} is reported committed without {missing[0]}"
    if result in ("aborted", "conflict") and "committing" in fate and "reverting" not in fate:
        return f"I10: job {uuid} is reported {result}: {' '.join(fate)}"
    return ""


def when_quiet(promised: Promised, store: Store, results: Mapping[str, Any], cleaned: bool) -> str:
    """What is broken when nobody acts any more. ``cleaned``: `cleanup` has run, an hour later."""
    for uuid in promised.jobs:
        fate = fate_of(store, uuid)
        if "committing" in fate and "nothing decided" in results.values():
            return f"I10: told that nothing was decided of job {uuid}: {' '.join(fate)}"
        undone = any(state in fate for state in UNDONE)
        if "committing" not in fate or undone or promised.contested:
            continue
        if missing := hidden(store, uuid):
            return f"I2: job {uuid} is committed without {missing[0]}"
    return _leaks(promised, store, results, cleaned) or _wrong_marker(store)


def _leaks(promised: Promised, store: Store, results: Mapping[str, Any], cleaned: bool) -> str:
    """I4, with its exceptions: a `closed` record; until `cleanup`, what landed late and what a
    killed process wrote after the decision."""
    live = {
        held.body.uuid
        for held in store.values()
        if isinstance(held, Object)
        and isinstance(held.body, Record)
        and held.body.state != "closed"
    }
    for key, held in store.items():
        if key.startswith(GHOST) or is_data(key) or not isinstance(held, Object):
            continue
        uuid = getattr(held.body, "uuid", "")
        if uuid not in promised.jobs or isinstance(held.body, Marker):
            continue
        if not fate_of(store, uuid):
            continue  # it was never started: the configuration put it there
        if isinstance(held.body, Record):
            if held.body.state == "closed":
                continue
            if "unresolved" in results.values():
                continue  # reported, never guessed
            if held.late and not cleaned:
                continue  # nobody has found it yet
            return f"I5: job {uuid} is left {held.body.state}"
        late = held.late or (held.decided and results.get(held.by) == "crashed")
        if uuid in live or (late and not (cleaned and _is_found(store, key, uuid))):
            continue
        what = "upload" if key.startswith(UPLOAD) else "control object"
        return f"I4: {what} {key.removeprefix(UPLOAD)} of job {uuid} is left"
    return ""


def _is_found(store: Store, key: str, uuid: str) -> bool:
    """Whether a cleanup takes litter: not yet where another run of a given id has its record."""
    record = store.get(f"{key.partition('/')[0]}/_job.json")
    return record is None or record.body.uuid == uuid


def _wrong_marker(store: Store) -> str:
    """I8: the marker that stays is not of a job that had ended before another was started."""
    held = store.get(SUCCESS)
    if held is None or not held.body.uuid:
        return ""
    completed = [uuid for uuid, state in store.get(GHOST + "order", ()) if state == "completed"]
    for uuid in completed:
        if _ran_after(store, uuid, held.body.uuid, "finished"):
            return f"I8: job {held.body.uuid}'s marker stays, job {uuid} ran after it"
    return ""
