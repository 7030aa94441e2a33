"""What the library promises on a store with certain ways, to a user without certain permissions.
Pure.

The sentences say what a job does: it refuses to start in a mode that the store cannot carry, or it
does something less safe instead, and says so (docs/stores.md). `tests/cli/test_doctor.py` compares
them with jobs on stores that behave like real servers.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass
from typing import get_args

from magic_committer.commit.probe import WHOLE_KEYS_ONLY, Capabilities
from magic_committer.doctor.policies import ABORT, DELETE, GET, LIST_UPLOADS, PUT, actions_of
from magic_committer.options import FAILING, Mode

TO_PROBE = frozenset({PUT, GET, DELETE, ABORT})
"""The actions that are needed to ask the store for its ways, and by every job."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is promised for one thing (a mode, say), in a sentence. ``works``: None: it was not
    found out."""

    subject: str
    works: bool | None
    sentence: str


WORKS = "works: a job is decided once, all of it or nothing; anyone can finish it from any crash"
UNLESS_KILLED = (
    "works, but for a client that is killed during a Complete: that file may be lost (see below)."
    " Else a job is decided once, all of it or nothing, and anyone can finish it"
)
"""What `append` promises on a store that may lose a file whose Complete was cut."""
_OFF = "Options(conditional_writes='off')"
_UNKNOWN = "was not found out"


Told = tuple[bool | None, str]
"""Whether something works, None: it was not found out; and a sentence."""


def verdicts(can: Capabilities, denied: Set[str]) -> Iterator[Verdict]:
    """What the library promises on such a store, where these actions are denied that a committer
    needs. Pure."""
    works, sentence = _decided(can, denied)
    # What only MinIO was seen to do. It is said if uploads are listed as only MinIO lists them:
    # nobody could ask without losing something.
    whole = can.notes.get("uploads_by_prefix") == WHOLE_KEYS_ONLY
    loses = can.uploads_by_prefix is False and whole
    if works and loses:
        sentence = UNLESS_KILLED
    for mode in get_args(Mode):
        alike = mode == "append" or not works
        yield Verdict(mode, *((works, sentence) if alike else _mode(mode, can)))
    if denied & TO_PROBE:
        off: Told = False, f"does not help: {_wants(denied)}"
    elif can.metadata_kept is False:
        off = False, "does not help: without its metadata no file can be told"
    elif works:
        off = True, "works, and is not needed: the store keeps what a decision rests on"
    else:
        off = True, "helps: S3A's guarantees only, one driver a job and no recovery beside it"
    yield Verdict(_OFF, *off)
    yield Verdict("finishing a job again", *_again(can))
    if loses:
        yield Verdict(
            "a client that is killed during Complete",
            False,
            "may lose the file, if the store is MinIO, whose way of listing uploads it has: object"
            " and parts are gone (docs/stores.md). Recovering the job names such keys as lost",
        )
    yield Verdict("finding uploads of killed tasks", *_killed(can, denied))


def _wants(denied: Set[str]) -> str:
    return f"the policy must allow {', '.join(sorted(denied))}"


def _decided(can: Capabilities, denied: Set[str]) -> Told:
    """What every mode needs; `append` needs no more."""
    if needed := denied & actions_of("committer"):
        return False, f"does not work: {_wants(needed)}"
    for name, verb in (("conditional_put", "PUT If-None-Match"), ("swap", "PUT If-Match")):
        if getattr(can, name) is False:
            how = can.notes.get(name, "does not keep it")
            sentence = f"is refused: of {verb} the store {how}, so no job could be decided once"
            return False, f"{sentence}. {_OFF} helps"
    if can.metadata_kept is False:
        how = can.notes.get("metadata_kept", "does not keep it")
        sentence = f"is refused: the store, or a proxy before it, {how}, so a job's files could not"
        return False, f"{sentence} be told from others'"
    if None in (can.conditional_put, can.swap, can.metadata_kept):
        return None, _UNKNOWN
    return True, WORKS


def _mode(mode: Mode, can: Capabilities) -> Told:
    """What a mode needs beside that."""
    fails = mode in FAILING
    name = "conditional_complete" if fails else "conditional_delete"
    kept, how = getattr(can, name), can.notes.get(name, "does not keep it")
    if kept is None:
        return None, _UNKNOWN
    if kept:
        only = "only what was there when it was planned is deleted"
        return True, f"works: {'nothing is ever written over' if fails else only}"
    if fails:
        sentence = f"is refused: of Complete If-None-Match the store {how}, so a job could write"
        return False, f"{sentence} over what somebody else wrote"
    sentence = f"works, with a warning: of DELETE If-Match the store {how}; a job looks before it"
    return True, f"{sentence} deletes, and what somebody writes between the two is lost"


def _again(can: Capabilities) -> Told:
    if can.second_complete is None:
        return None, _UNKNOWN
    how = {
        "idempotent": "a second Complete is answered as the first",
        "forgetful": "a second Complete is answered with 404, and the object tells by its token",
        "other": f"a second Complete {can.notes.get('second_complete', 'is an error')}, and the"
        " object tells by its token",
    }
    slower = ""
    if can.true_complete is False:
        false = can.notes.get("true_complete", "answers 200 falsely")
        slower = (
            f"; but the store {false}: each object is looked at after its Complete, and completing"
            " takes some two thirds longer"
        )
    return True, f"works: {how[can.second_complete]}{slower}"


def _killed(can: Capabilities, denied: Set[str]) -> Told:
    stay = "they stay until a lifecycle rule takes them (lifecycle ensure)"
    if LIST_UPLOADS in denied:
        return False, f"does not work: {_wants({LIST_UPLOADS})}; {stay}"
    if can.uploads_by_prefix is None:
        return None, f"was not found out; where they are not listed {stay}"
    for name, all_of in (("uploads_by_prefix", ""), ("uploads_paged", " past 1,000")):
        if getattr(can, name) is False:
            how = can.notes.get(name, "does not list them")
            return False, f"does not work{all_of}: the store {how}; {stay}"
    return True, f"works{'' if can.uploads_paged else '; past 1,000 was not asked (--paging)'}"
