"""The backstop: a bucket's rule that aborts uploads which nobody completed.

If a machine dies while its Create is in flight, an upload stays that no program can know
(docs/protocol.md, "What is not promised"). S3 itself removes it after N days, if a rule says so.

Invariants:

* **Other rules stay as they are.** S3 writes a configuration as a whole. So it is read, one rule of
  ours is added or changed, and all of it is written. `merge` is pure, and keeps every other rule
  unchanged and in its place. A rule is ours by its id *and* its whole shape: if somebody has added
  to it, it is not ours.
* **S3 has no condition for this write.** Our read comes right before our write. What another
  program writes between them is lost. So that this is noticed, the stored configuration is read
  back and compared.
* A rule covers a prefix if it is enabled and its only condition is this prefix or a beginning of
  it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from magic_committer.errors import MagicError, OptionError
from magic_committer.runtime.components import Clock, again
from magic_committer.runtime.wiring import BucketSettings

RULE_ID = "magic-committer-abort-incomplete-uploads"
"""The id of the rule for a whole bucket. The id of a rule for a prefix contains it."""
RULE_ID_PREFIX_CHARS = 64
"""How much of a prefix is in a rule's id, for people, before its hash. An id has at most 255
characters."""
HASH_CHARS = 12
DAYS_MAX = 2**31 - 1
READ_BACK_TRIES_MAX = 5
READ_BACK_SECONDS = 1.0
"""Seconds before the second look. They double each time: a bucket's settings may take a moment (S3
user guide, "Amazon S3 data consistency model")."""

Rule = Mapping[str, Any]
"""As in S3's API: ``{"ID": …, "Status": "Enabled", "Filter": {"Prefix": …}, …}``."""
Configuration = Mapping[str, Any]
"""``{"Rules": […], "TransitionDefaultMinimumObjectSize": …}``; {} for a bucket that has none."""
Change = Literal["nothing", "added", "changed"]

_ABORT = "AbortIncompleteMultipartUpload"
_DAYS = "DaysAfterInitiation"


class LifecycleChanged(MagicError):
    """The stored configuration is not the written one: another program wrote at the same time, or
    the store does not keep it."""


@dataclass(frozen=True, slots=True)
class Merged:
    """A configuration that aborts uploads below a prefix in time, what had to be changed, and the
    rule that aborts them."""

    configuration: Configuration
    change: Change
    rule: Rule


def rules_of(configuration: Configuration) -> list[Rule]:
    """The rules, in order."""
    return list(configuration.get("Rules", ()))


def prefix_of(rule: Rule) -> str | None:
    """The prefix of the keys to which a rule applies; None if it has other conditions."""
    if "Filter" not in rule:
        prefix: str | None = rule.get("Prefix", "")
        return prefix
    narrowed = rule["Filter"]
    if set(narrowed) == {"And"}:
        narrowed = narrowed["And"]
    return narrowed.get("Prefix", "") if set(narrowed) <= {"Prefix"} else None


def abort_days(rule: Rule) -> int | None:
    """After how many days a rule aborts an upload; None if it aborts none."""
    days: int | None = rule.get(_ABORT, {}).get(_DAYS)
    return days if rule.get("Status") == "Enabled" else None


def covering(configuration: Configuration, prefix: str, days: int) -> Rule | None:
    """A rule that aborts every upload below a prefix after at most ``days`` days."""
    for rule in rules_of(configuration):
        reach, after = prefix_of(rule), abort_days(rule)
        if reach is not None and after is not None and after <= days and prefix.startswith(reach):
            return rule
    return None


def rule_id(prefix: str) -> str:
    """The id of our rule for a prefix. It has only characters that every store accepts (IBM
    COS)."""
    if not prefix:
        return RULE_ID
    readable = re.sub(r"[^A-Za-z0-9_.]+", "-", prefix)[:RULE_ID_PREFIX_CHARS].strip("-")
    return f"{RULE_ID}-{readable}-{hashlib.sha256(prefix.encode()).hexdigest()[:HASH_CHARS]}"


def merge(configuration: Configuration, prefix: str, days: int) -> Merged:
    """Add what is needed to abort uploads below ``prefix`` after ``days`` days. Pure. A second
    merge changes nothing.

    Our own rule for the prefix gets these days, even if it had fewer. If another rule is as early
    or earlier, ours is not needed. `OptionError`: S3 does not accept this number of days.
    """
    if isinstance(days, bool) or not isinstance(days, int) or not 1 <= days <= DAYS_MAX:
        raise OptionError(f"days is a whole number from 1 to {DAYS_MAX}, not {days!r}")
    rules = rules_of(configuration)
    ours = next((n for n, rule in enumerate(rules) if _is_ours(rule, prefix)), None)
    if ours is not None and abort_days(rules[ours]) != days:
        rules[ours] = {**rules[ours], "Status": "Enabled", _ABORT: {_DAYS: days}}
        return Merged({**configuration, "Rules": rules}, "changed", rules[ours])
    there = covering(configuration, prefix, days) if ours is None else rules[ours]
    if there is not None:
        return Merged(configuration, "nothing", there)
    # S3 refuses a configuration with rules of the old form and rules of the new form.
    old_form = any("Prefix" in r for r in rules) and not any("Filter" in r for r in rules)
    reach = {"Prefix": prefix} if old_form else {"Filter": {"Prefix": prefix}}
    wanted, taken = rule_id(prefix), {rule.get("ID") for rule in rules}
    others = (f"{wanted}-{number}" for number in range(2, len(taken) + 3))
    free = next(one for one in (wanted, *others) if one not in taken)
    added = {"ID": free, "Status": "Enabled", **reach, _ABORT: {_DAYS: days}}
    return Merged({**configuration, "Rules": [*rules, added]}, "added", added)


def _is_ours(rule: Rule, prefix: str) -> bool:
    return (
        re.fullmatch(rf"{re.escape(rule_id(prefix))}(-\d+)?", rule.get("ID", "")) is not None
        and set(rule) <= {"ID", "Status", "Filter", "Prefix", _ABORT}
        and set(rule.get(_ABORT, ())) == {_DAYS}
        and prefix_of(rule) == prefix
    )


def ensure(settings: BucketSettings, prefix: str, days: int, clock: Clock) -> Merged:
    """Make sure that uploads below ``prefix`` are aborted after ``days`` days: read, merge, write,
    read back. Repeatable; if nothing is needed, nothing is written. `LifecycleChanged`: something
    else is stored afterwards. FormatError: there are rules that would be lost; nothing was written.
    It needs s3:GetLifecycleConfiguration and s3:PutLifecycleConfiguration."""
    merged = merge(settings.lifecycle(), prefix, days)
    if merged.change == "nothing":
        return merged
    settings.put_lifecycle(merged.configuration)
    for _ in again(clock, READ_BACK_TRIES_MAX, READ_BACK_SECONDS):
        if same(settings.lifecycle(), merged.configuration):
            return merged
    raise LifecycleChanged(
        "the bucket's lifecycle is not what was just written",
        hint="Somebody else may have changed it at the same moment, and rules of theirs be gone:"
        " look with lifecycle show, then do it again",
    )


def same(stored: Configuration, wanted: Configuration) -> bool:
    """Whether everything that was written is stored, and no other rule. Ids that the store chose
    and the order are not compared."""
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
    """A rule with an empty filter, written in one form."""
    plain = {name: value for name, value in rule.items() if not (name == "ID" and not value)}
    return {**plain, "Filter": {"Prefix": ""}} if plain.get("Filter") == {} else plain
