"""``lifecycle show|ensure``: the rule of a bucket that aborts what nobody completed."""

from __future__ import annotations

from typing import Any

import click
import orjson

from magic_committer.cli.app import group
from magic_committer.cli.output import Column
from magic_committer.cli.shell import Shell, command
from magic_committer.cli.values import DIRECTORY, dry_run
from magic_committer.errors.messages import counted
from magic_committer.hadoop.paths import Destination
from magic_committer.maintenance import lifecycle as settings_of
from magic_committer.maintenance.lifecycle import Rule, abort_days, prefix_of, rules_of
from magic_committer.runtime import wiring

lifecycle = group("lifecycle", "lifecycle ensure s3://bucket/table --days 7")

SHORT_DAYS = 2
"""A rule of fewer days may take the uploads of a job that waits for its recovery."""
TOLD = frozenset({"ID", "Status", "Filter", "Prefix", "AbortIncompleteMultipartUpload"})
"""Elements of a rule that stand in columns or words of their own."""
FIELDS = ("id", "status", "prefix", "abort_days", "covers", "words", "rule")
COLUMNS = (Column("id", "rule"), Column("status"), Column("words", "does", prose=True))
_bucket = click.argument("dest", metavar="BUCKET|URL", type=DIRECTORY)


@command(lifecycle, "show", "The bucket's rules, in words.", "s3://bucket")
@_bucket
def show(shell: Shell, dest: Destination) -> None:
    """Show the lifecycle rules of BUCKET; with s3://BUCKET/PREFIX whether they cover it."""
    configuration = wiring.bucket_settings(dest.bucket, shell.s3).lifecycle()
    rows = [_row(rule, dest) for rule in rules_of(configuration)]
    covered = min((row["abort_days"] for row in rows if row["covers"]), default=None)
    told = f"No rule aborts uploads below {dest.url}"
    if covered is not None:
        told = f"Uploads below {dest.url} are aborted {_after(covered)}"
    shell.output.rows(
        "rule", COLUMNS, rows, fields=FIELDS,
        summary=lambda: {"dest": dest.url, "rules": len(rows), "abort_days": covered},
        closing=lambda: told,
    )  # fmt: skip
    if covered is None:
        shell.advise("This adds one:", shell.line("lifecycle", "ensure", dest.url, "--days", "7"))


@command(lifecycle, "ensure", "Add the rule that aborts old uploads.", "s3://bucket/table --days 7")
@_bucket
@click.option(
    "--days", type=int, metavar="N", required=True, help="After how many days an upload is aborted."
)
@dry_run
def ensure_rule(shell: Shell, dest: Destination, days: int, dry_run: bool, yes: bool) -> None:
    """See to it that a rule aborts uploads below s3://BUCKET/PREFIX --days after they began.

    One rule is added, or ours is changed; all others stay. S3 has no condition on this write: what
    somebody else changes in the same second may be lost, so what is stored is read back.
    """
    settings = wiring.bucket_settings(dest.bucket, shell.s3)
    merged = settings_of.merge(settings.lifecycle(), dest.prefix, days)
    if merged.change != "nothing":
        if days < SHORT_DAYS:
            shell.note(
                f"note: {counted(days, 'day')} is short: a job that runs longer loses its uploads,"
                " and so does one whose driver has died, unless it is recovered before"
            )
        if not dry_run:
            if not yes:
                verb = "A rule is added" if merged.change == "added" else "Our rule is changed"
                shell.confirm(f"{verb} that aborts uploads {_after(days)}. Go on?")
            merged = settings_of.ensure(
                settings, dest.prefix, days, shell.runtime(dest.bucket).clock
            )
    done = merged.change != "nothing" and not dry_run
    value = {"dest": dest.url, "change": merged.change, "done": done, "days": days}
    value |= {"rules": len(rules_of(merged.configuration)), "rule": dict(merged.rule)}
    shell.output.document("lifecycle", value)
    would = {"nothing": "Nothing to do because of", "added": "Would add", "changed": "Would change"}
    begin = merged.change.capitalize() if done else would[merged.change]
    shell.output.text(f"{begin} rule {merged.rule.get('ID', '')!r}: it {_words(merged.rule, dest)}")
    shell.output.text("A job that runs longer loses its uploads")


def _row(rule: Rule, dest: Destination) -> dict[str, Any]:
    reach, after = prefix_of(rule), abort_days(rule)
    covers = reach is not None and after is not None and dest.prefix.startswith(reach)
    told = {"id": rule.get("ID", ""), "status": rule.get("Status", ""), "prefix": reach}
    told |= {"abort_days": after, "covers": covers, "words": _words(rule, dest)}
    return {**told, "rule": dict(rule)}


def _after(days: int | None) -> str:
    return f"{'?' if days is None else counted(days, 'day')} after they began"


def _words(rule: Rule, dest: Destination) -> str:
    """What a rule does: about uploads in words, all else as S3 writes it."""
    reach = prefix_of(rule)
    others = {name: held for name, held in rule.items() if name not in TOLD}
    if reach is None:
        others["Filter"] = rule["Filter"]
    words = [f"aborts uploads {_after(days)}"] if (days := abort_days(rule)) is not None else []
    if others:
        words.append(orjson.dumps(others, default=str).decode())
    done = "; ".join(words) or "does nothing"
    return done if reach is None else f"{done}, in s3://{dest.bucket}/{reach}*"
