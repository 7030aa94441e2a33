"""``doctor``: may we, can the store, and what is promised then."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from typing import Any

import click
import orjson

from magic_committer import _wiring
from magic_committer.cli import exits
from magic_committer.cli.app import WORDS, root
from magic_committer.cli.output import Column, Output
from magic_committer.cli.shell import Shell, command
from magic_committer.cli.values import DIRECTORY
from magic_committer.doctor.permissions import Diagnosis, diagnose
from magic_committer.doctor.policies import ROLES, Role, policy
from magic_committer.errors import NotSupported
from magic_committer.hadoop.paths import Destination

FIELDS = ("about", "name", "answer", "detail", "on", "roles", "dest")
"""Of a check: about a ``permission``, the ``store`` or a ``promise``."""


PERMISSION_COLUMNS = (
    Column("name", "permission"),
    Column("answer"),
    Column(
        "roles",
        "needed by",
        prose=True,
        words=lambda some: "every role" if len(some) == len(ROLES) else ", ".join(some),
    ),
    Column("use", "for", prose=True),
    Column("where", "what the store said", prose=True),
)
STORE_COLUMNS = (
    Column("words", "the store"),
    Column("answer"),
    Column("detail", "how it answers", prose=True),
)
PROMISE_COLUMNS = (
    Column("name", "promise"),
    Column("answer", "holds"),
    Column("detail", "in words", prose=True),
)

_STORE_WORDS = {
    "conditional_put": "keeps PUT If-None-Match",
    "swap": "keeps PUT If-Match",
    "etag_quoting": "takes a right If-Match",
    "conditional_complete": "keeps Complete If-None-Match",
    "conditional_delete": "keeps DELETE If-Match",
    "second_complete": "answers a second Complete",
    "uploads_by_prefix": "lists uploads by prefix",
    "uploads_paged": "lists uploads past 1,000",
    "metadata_kept": "gives user metadata back",
    "true_complete": "refuses Complete of an aborted upload",
}
_WORKS = {True: "yes", False: "no", None: "unknown"}
_KEPT = {True: "yes", False: "no", None: "not asked"}


@command(root, "doctor", WORDS["doctor"], "s3://bucket/table", "s3://bucket/table --policy writer")
@click.argument("path", type=DIRECTORY)
@click.option(
    "--policy", "policy_for", type=click.Choice(ROLES),
    help="Ask nothing: print the least IAM policy for this role.",
)  # fmt: skip
@click.option(
    "--role", type=click.Choice(ROLES), default="committer", show_default=True,
    help="Whose permissions decide the exit code.",
)  # fmt: skip
@click.option("--paging", is_flag=True, help="Also list 1,001 uploads: 2,000 requests more.")
def doctor(
    shell: Shell, path: Destination, policy_for: Role | None, role: Role, paging: bool
) -> int:
    """Try what a job may and can do under PATH, and say what is promised there.

    Some 80 requests in a job's directory of its own; nothing is left behind. Exit code 0: all that
    mode append needs is there; 43: a permission is lacking; 46: the store cannot do it.
    """
    if policy_for is not None:
        made = policy(policy_for, path)
        if shell.output.format == "table":  # as IAM takes it, to be piped on
            written = orjson.dumps(made, option=orjson.OPT_INDENT_2).decode()
            shell.output.stream.write(f"{written}\n")
        else:
            shell.output.document("policy", {"role": policy_for, "dest": path.url, "policy": made})
        return exits.OK
    settings = None
    with suppress(NotSupported):
        settings = _wiring.bucket_settings(path.bucket, shell.s3)
    found = diagnose(shell.runtime(path.bucket), path, settings, paging=paging)
    _print(shell.output, found)
    for one in found.left:
        shell.note(f"note: this could not be taken away again: {one}")
    if found.lacks(role, "denied"):
        return exits.FORBIDDEN
    if found.lacks(role, "unanswered"):
        return exits.NO_ANSWER
    append = next(v for v in found.verdicts if v.subject == "append")
    return exits.OK if append.works or role == "writer" else exits.BAD_STATE


def _print(output: Output, found: Diagnosis) -> None:
    """Three tables for people; a row for each check for programs."""
    if output.format != "table":
        names = ("dest", "store", "transport", "problem")
        summary = {name: getattr(found, name) for name in names} | {"left": list(found.left)}
        rows = [{**row, "dest": found.dest} for kind in _checks(found) for row in kind]
        output.rows("check", (), rows, fields=FIELDS, summary=lambda: summary)
        return
    by = f", by {found.transport}" if found.transport else ""
    output.text(f"{found.dest} on {found.store}{by}")
    for columns, rows in zip(
        (PERMISSION_COLUMNS, STORE_COLUMNS, PROMISE_COLUMNS), _checks(found), strict=True
    ):
        output.text("")
        output.rows("check", columns, rows, fields=FIELDS)
        if columns is STORE_COLUMNS and found.problem:
            output.text(found.problem)


def _checks(found: Diagnosis) -> tuple[list[dict[str, Any]], ...]:
    """The rows on permissions, on the store, and on promises."""
    permissions = [
        {
            **asdict(one),
            "about": "permission",
            "name": one.action,
            "where": one.detail or (one.on if one.roles == ("cleaner",) else ""),
        }
        for one in found.permissions
    ]
    store = []
    for name, words in _STORE_WORDS.items():
        kept = getattr(found.can, name)
        answer = kept if isinstance(kept, str) else _KEPT[kept]
        row = {"about": "store", "name": name, "words": words, "answer": answer}
        store.append({**row, "detail": found.can.notes.get(name, "")})
    promises = [
        {"about": "promise", "name": v.subject, "answer": _WORKS[v.works], "detail": v.sentence}
        for v in found.verdicts
    ]
    return permissions, store, promises
