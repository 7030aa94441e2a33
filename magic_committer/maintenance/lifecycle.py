"""The backstop: a bucket's rule that aborts uploads which nobody completed.

A Create that is in flight when its machine dies leaves an upload that no program can know of
(docs/protocol.md, "What is not promised"); S3 itself takes it away after N days, if a rule says so.

Invariants:

* **Other rules stay as they are.** S3 writes a configuration whole: so it is read, one rule of ours
  is added or changed, and all of it is written. `merge` is pure, and keeps every other rule
  untouched and in its place. A rule is ours by its id *and* its whole shape: one that somebody
  has added to is theirs.
* **S3 has no condition on this write.** What somebody else writes between our read, which is made
  right before, and our write is lost. What is stored is read back and compared, so that it does not
  go unseen.
* A rule covers a prefix if it is enabled, goes by a prefix of it and by nothing else.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from magic_committer._quantities import counted
from magic_committer._runtime import Clock, Runtime
from magic_committer._wiring import BucketSettings
from magic_committer.commit import records
from magic_committer.errors import FormatError, MagicError, OptionError
from magic_committer.hadoop.paths import RECORD, Destination
from magic_committer.maintenance.inspect import job_directories
from magic_committer.maintenance.reports import DEAD_SECONDS
from magic_committer.protocol.record import State

RULE_ID = "magic-committer-abort-incomplete-uploads"
"""Of the rule for a whole bucket; one for a prefix names it, too."""
RULE_ID_PREFIX_CHARS = 64
"""So much of a prefix is in a rule's id, for people, before its hash. An id has 255 characters."""
HASH_CHARS = 12
DAYS_MAX = 2**31 - 1
DAY_SECONDS = 86_400.0
READ_BACK_TRIES_MAX = 5
READ_BACK_SECONDS = 1.0
"""Pause before the second look, doubled each time: a bucket's settings may take a moment (S3 user
guide, "Amazon S3 data consistency model")."""

Rule = Mapping[str, Any]
"""As S3's API has it: ``{"ID": …, "Status": "Enabled", "Filter": {"Prefix": …}, …}``."""
Configuration = Mapping[str, Any]
"""``{"Rules": […], "TransitionDefaultMinimumObjectSize": …}``; {} of a bucket that has none."""
Change = Literal["nothing", "added", "changed"]

_ABORT = "AbortIncompleteMultipartUpload"
_DAYS = "DaysAfterInitiation"


class LifecycleChanged(MagicError):
    """What is stored is not what was written: somebody else wrote at the same time, or the store
    does not keep it."""


@dataclass(frozen=True, slots=True)
class Merged:
    """A configuration that aborts uploads below a prefix in time.

    Attributes:
        change: what was needed. rule: the one that does it.
    """

    configuration: Configuration
    change: Change
    rule: Rule


# Rules --------------------------------------------------------------------------------------------


def rules_of(configuration: Configuration) -> list[Rule]:
    """The rules, in order."""
    return list(configuration.get("Rules", ()))


def prefix_of(rule: Rule) -> str | None:
    """The prefix to whose keys a rule applies; None if it goes by more than a prefix."""
    if "Filter" not in rule:
        prefix: str | None = rule.get("Prefix", "")
        return prefix
    narrowed = rule["Filter"]
    if set(narrowed) == {"And"}:
        narrowed = narrowed["And"]
    return narrowed.get("Prefix", "") if set(narrowed) <= {"Prefix"} else None


def abort_days(rule: Rule) -> int | None:
    """After how many days a rule aborts an upload; None if it does not."""
    days: int | None = rule.get(_ABORT, {}).get(_DAYS)
    return days if rule.get("Status") == "Enabled" else None


def covering(configuration: Configuration, prefix: str, days: int) -> Rule | None:
    """A rule that aborts every upload below a prefix after ``days`` days or sooner."""
    for rule in rules_of(configuration):
        reach, after = prefix_of(rule), abort_days(rule)
        if reach is not None and after is not None and after <= days and prefix.startswith(reach):
            return rule
    return None


def rule_id(prefix: str) -> str:
    """The id of our rule for a prefix. Only characters that every store takes (IBM COS)."""
    if not prefix:
        return RULE_ID
    readable = re.sub(r"[^A-Za-z0-9_.]+", "-", prefix)[:RULE_ID_PREFIX_CHARS].strip("-")
    return f"{RULE_ID}-{readable}-{hashlib.sha256(prefix.encode()).hexdigest()[:HASH_CHARS]}"


def merge(configuration: Configuration, prefix: str, days: int) -> Merged:
    """Put in what is needed for uploads below ``prefix`` to be aborted after ``days`` days. Pure,
    and merging again changes nothing.

    Our own rule for the prefix gets these days, also more than it had; another rule that is as
    soon or sooner makes ours unnecessary.

    Raises:
        OptionError: not a number of days that S3 takes.
    """
    if isinstance(days, bool) or not isinstance(days, int) or not 1 <= days <= DAYS_MAX:
        raise OptionError(f"days is a whole number from 1 to {DAYS_MAX}, not {days!r}")
    rules = rules_of(configuration)
    ours = next((n for n, rule in enumerate(rules) if _is_ours(rule, prefix)), None)
    if ours is not None:
        kept = rules[ours]
        if abort_days(kept) == days:
            return Merged(configuration, "nothing", kept)
        rules[ours] = {**kept, "Status": "Enabled", _ABORT: {_DAYS: days}}
        return Merged({**configuration, "Rules": rules}, "changed", rules[ours])
    there = covering(configuration, prefix, days)
    if there is not None:
        return Merged(configuration, "nothing", there)
    # S3 refuses a configuration in which some rules have the old form and some the new one.
    old_form = any("Prefix" in r for r in rules) and not any("Filter" in r for r in rules)
    reach = {"Prefix": prefix} if old_form else {"Filter": {"Prefix": prefix}}
    added = {"ID": _free_id(rules, prefix), "Status": "Enabled", **reach, _ABORT: {_DAYS: days}}
    return Merged({**configuration, "Rules": [*rules, added]}, "added", added)


def _is_ours(rule: Rule, prefix: str) -> bool:
    wanted = rule_id(prefix)
    named = rule.get("ID", "")
    of_ours = named == wanted or re.fullmatch(rf"{re.escape(wanted)}-\d+", named)
    return (
        bool(of_ours)
        and set(rule) <= {"ID", "Status", "Filter", "Prefix", _ABORT}
        and set(rule.get(_ABORT, ())) == {_DAYS}
        and prefix_of(rule) == prefix
    )


def _free_id(rules: list[Rule], prefix: str) -> str:
    wanted = rule_id(prefix)
    taken = {rule.get("ID") for rule in rules}
    others = (f"{wanted}-{number}" for number in range(2, len(taken) + 3))
    return next(one for one in (wanted, *others) if one not in taken)


# Reading and writing ------------------------------------------------------------------------------


def ensure(settings: BucketSettings, prefix: str, days: int, clock: Clock) -> Merged:
    """See to it that uploads below ``prefix`` are aborted after ``days`` days: read, merge, write,
    read back. Repeatable; when nothing is needed, nothing is written.

    Raises:
        LifecycleChanged: what is stored afterwards is something else. Look, and do it again.
        NotSupported: the store has no lifecycle.
        FormatError: there are rules that would not be kept. Nothing was written.
        PermissionDenied: it wants s3:GetLifecycleConfiguration and s3:PutLifecycleConfiguration.
    """
    merged = merge(settings.lifecycle(), prefix, days)
    if merged.change == "nothing":
        return merged
    settings.put_lifecycle(merged.configuration)
    for number in range(READ_BACK_TRIES_MAX):
        if number:
            clock.sleep(READ_BACK_SECONDS * 2 ** (number - 1))
        if same(settings.lifecycle(), merged.configuration):
            return merged
    raise LifecycleChanged(
        "the bucket's lifecycle is not what was just written",
        hint="Somebody else may have changed it at the same moment, and rules of theirs be gone:"
        " look with lifecycle show, then do it again",
    )


def same(stored: Configuration, wanted: Configuration) -> bool:
    """Whether all of what was written is stored, and no rule beside it. An id that was left to the
    store is not compared, nor is the order."""
    left = [_plain(rule) for rule in rules_of(stored)]
    for rule in (_plain(rule) for rule in rules_of(wanted)):
        drop = "ID" if not rule.get("ID") else None
        found = next(
            (one for one in left if {k: v for k, v in one.items() if k != drop} == rule), None
        )
        if found is None:
            return False
        left.remove(found)
    others = (name for name in wanted if name != "Rules")
    return not left and all(stored.get(name) == wanted[name] for name in others)


def _plain(rule: Rule) -> dict[str, Any]:
    """A rule with an empty filter written in one way."""
    plain = {name: value for name, value in rule.items() if not (name == "ID" and not value)}
    return {**plain, "Filter": {"Prefix": ""}} if plain.get("Filter") == {} else plain


# Live jobs ----------------------------------------------------------------------------------------


def longest_live(runtime: Runtime, dest: Destination) -> float:
    """How long the oldest job under a destination has been live by now, in seconds; 0 without one.
    By the store's clock; of jobs that have been decided by their starter's.

    Raises:
        StoreError: the jobs could not be listed or read.
    """
    longest = 0.0
    for directory in job_directories(runtime, dest):
        with suppress(FormatError):  # of a newer version, or no record
            seen = records.read(runtime, f"{directory}{RECORD}")
            if seen is None or seen.record.state not in (State.RUNNING, State.COMMITTING):
                continue
            running = seen.record.state is State.RUNNING
            began = seen.last_modified if running else seen.record.started
            longest = max(longest, seen.seen_at - began)
    return longest


def too_short(days: int, longest: float) -> str:
    """Why a rule of so many days may hurt, in a sentence; "" if it should not. Pure.

    Args:
        longest: as of `longest_live`.
    """
    after = counted(days, "day")
    if days * DAY_SECONDS < longest:
        return (
            f"a live job here has run for {longest / DAY_SECONDS:.1f} days; after {after} its"
            " uploads are aborted under it, and it cannot commit"
        )
    if days * DAY_SECONDS < 2 * DEAD_SECONDS:
        return (
            f"{after} is short: a job that runs longer loses its uploads, and so does one whose"
            " driver has died, unless it is recovered before"
        )
    return ""
