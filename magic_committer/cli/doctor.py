"""``doctor``: may we, can the store, and what is promised then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
import orjson

from magic_committer.cli import exits
from magic_committer.cli.app import WORDS, root
from magic_committer.cli.output import Column
from magic_committer.cli.shell import Shell, command
from magic_committer.cli.values import DIRECTORY
from magic_committer.hadoop.paths import Destination
from magic_committer.maintenance import api
from magic_committer.maintenance.doctor import (
    FINDING,
    ROLES,
    Diagnosis,
    Role,
    lacks,
    policy,
)

FIELDS = ("about", "name", "answer", "detail", "on", "roles", "dest")
"""Of a check: about a ``permission``, the ``store`` or a ``promise``."""
COLUMNS = (
    Column("words", "what"),
    Column("answer"),
    Column("told", "why, and how it answers", prose=True),
)
STORE_WORDS = {
    "conditional_put": "keeps PUT If-None-Match",
    "swap": "keeps PUT If-Match",
    "etag_quoting": "accepts a right If-Match",
    "conditional_complete": "keeps Complete If-None-Match",
    "conditional_delete": "keeps DELETE If-Match",
    "second_complete": "answers a second Complete",
    "uploads_by_prefix": "lists uploads by prefix",
    "metadata_kept": "gives user metadata back",
    "true_complete": "refuses a Complete after an abort",
}
ANSWERS: dict[object, str] = {True: "yes", False: "no"}


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
def doctor(shell: Shell, path: Destination, policy_for: Role | None, role: Role) -> int:
    """Try what a job may and can do under PATH, and say what is promised there.

    Some 80 requests in a job's directory of its own; nothing is left behind. Exit code 0: all that
    mode append needs is there; 43: a permission is lacking; 46: the store cannot do it.
    """
    if policy_for is not None:
        made = policy(policy_for, path)
        if shell.output.format == "table":  # in IAM's form, to be piped on
            written = orjson.dumps(made, option=orjson.OPT_INDENT_2).decode()
            shell.output.write(f"{written}\n")
        else:
            shell.output.document("policy", {"role": policy_for, "dest": path.url, "policy": made})
        return exits.OK
    found = api.doctor(path.url, s3=shell.s3)
    names = ("dest", "store", "transport", "problem")
    by = f", by {found.transport}" if found.transport else ""
    shell.output.rows(
        "check", COLUMNS, _checks(found), fields=FIELDS,
        summary=lambda: {name: getattr(found, name) for name in names} | {"left": list(found.left)},
        closing=lambda: ". ".join(
            filter(None, (f"{found.dest} on {found.store}{by}", found.problem))
        ),
    )  # fmt: skip
    for one in found.left:
        shell.note(f"note: this could not be taken away again: {one}")
    if (FINDING, False) in ((v.subject, v.works) for v in found.verdicts):
        rule = shell.line("lifecycle", "ensure", path.url, "--days", "7")
        shell.advise("Uploads of killed tasks stay until a lifecycle rule removes them:", rule)
    if lacks(found, role, "denied"):
        return exits.FORBIDDEN
    if lacks(found, role, "unanswered"):
        return exits.NO_ANSWER
    append = next(v for v in found.verdicts if v.subject == "append")
    return exits.OK if append.works or role == "writer" else exits.BAD_STATE


def _checks(found: Diagnosis) -> Iterator[dict[str, Any]]:
    """A row for each permission, way of the store, and promise; for people with words."""

    def row(about: str, name: str, answer: str, detail: str, **more: Any) -> dict[str, Any]:
        told = {"about": about, "name": name, "answer": answer, "detail": detail}
        return {**told, "dest": found.dest, "words": name, "told": detail, **more}

    for one in found.permissions:
        whom = "every role" if len(one.roles) == len(ROLES) else ", ".join(one.roles)
        above = one.on if one.roles == ("cleaner",) else ""
        said = "; ".join(filter(None, (f"{one.use} ({whom})", one.detail or above)))
        more = {"told": said, "on": one.on, "roles": one.roles}
        yield row("permission", one.action, one.answer, one.detail, **more)
    for name, words in STORE_WORDS.items():
        kept = getattr(found.can, name)
        answer = kept if isinstance(kept, str) else ANSWERS.get(kept, "not asked")
        yield row("store", name, answer, found.can.notes.get(name, ""), words=words)
    for v in found.verdicts:
        yield row("promise", v.subject, ANSWERS.get(v.works, "unknown"), v.sentence)
