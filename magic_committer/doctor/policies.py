"""Who needs which S3 actions, and the least policy that allows them. Pure.

One source of truth for the README's policy, for ``doctor --policy`` and for what the doctor asks;
`tests/cli/test_doctor.py` runs jobs that may do no more. Roles:

* ``writer``: a process that only runs tasks of jobs that others started.
* ``committer``: a driver: it starts, commits, aborts and recovers jobs. It may run tasks, too.
* ``cleaner``: `magic_committer.cleanup` from cron. Whether the job of an upload is over says a
  record that may lie in any directory above it: those are read as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

from magic_committer.hadoop.elements import MAGIC, MAGIC_JOB_PREFIX
from magic_committer.hadoop.paths import RECORD, Destination
from magic_committer.options import Track

Role = Literal["writer", "committer", "cleaner"]
ROLES: tuple[Role, ...] = get_args(Role)
_NO_TASK: tuple[Role, ...] = ("committer", "cleaner")

PUT, GET, DELETE = "s3:PutObject", "s3:GetObject", "s3:DeleteObject"
ABORT, PARTS = "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"
LIST, LIST_UPLOADS = "s3:ListBucket", "s3:ListBucketMultipartUploads"
LIFECYCLE = "s3:GetLifecycleConfiguration"

POLICY_VERSION = "2012-10-17"
"""Of the policy language (IAM reference); not of ours."""


@dataclass(frozen=True, slots=True)
class Permission:
    """One S3 action (Service Authorization Reference), and what it is needed for.

    Attributes:
        roles: who needs it.
    """

    action: str
    use: str
    roles: tuple[Role, ...]


PERMISSIONS: tuple[Permission, ...] = (
    Permission(PUT, "files, records, plans", ROLES),
    Permission(GET, "records, what tasks left", ROLES),
    Permission(DELETE, "control objects; what a job replaces", ROLES),
    Permission(ABORT, "files that are not committed", ROLES),
    Permission(PARTS, "whether uploads are there, or gone", ROLES),
    Permission(LIST, "what tasks left, jobs, data to replace", ROLES),
    Permission(LIST_UPLOADS, "uploads of killed tasks", _NO_TASK),
    Permission(LIFECYCLE, "the rule that is the backstop", ("cleaner",)),
)
"""Every action that the library uses, but for ``lifecycle ensure``."""

OF_THE_MEMORY_TRACK = frozenset({PUT, GET, ABORT, PARTS})
"""All that a task with ``track="memory"`` does: nothing of it lies on the store before it ends."""

_ON_OBJECTS = (PUT, GET, DELETE, ABORT, PARTS)


def actions_of(role: Role, track: Track = "s3") -> frozenset[str]:
    """The actions that a role needs.

    Args:
        track: of the jobs whose tasks a ``writer`` runs; nothing to the others.
    """
    needed = frozenset(one.action for one in PERMISSIONS if role in one.roles)
    return needed & OF_THE_MEMORY_TRACK if (role, track) == ("writer", "memory") else needed


def policy(role: Role, dest: Destination, track: Track = "s3") -> dict[str, Any]:
    """The least IAM policy for a role under a destination, as the JSON that IAM takes.

    It is for AWS's ordinary partition: elsewhere replace ``arn:aws`` (``arn:aws-cn``). Not in it:
    what encryption by KMS, tags and ACLs need beside it (README, "Permissions").
    """
    needed = actions_of(role, track)
    bucket = f"arn:aws:s3:::{dest.bucket}"
    below = f"{_literal(dest.prefix)}*"
    above = list(map(_literal, directories_above(dest.prefix))) if role == "cleaner" else []
    statements: list[dict[str, Any]] = [
        {
            "Sid": "FilesRecordsAndUploads",
            "Effect": "Allow",
            "Action": [action for action in _ON_OBJECTS if action in needed],
            "Resource": f"{bucket}/{below}",
        }
    ]
    if above:
        statements.append(
            {
                "Sid": "RecordsAbove",
                "Effect": "Allow",
                "Action": GET,
                "Resource": [f"{bucket}/{one}{MAGIC_JOB_PREFIX}*/{RECORD}" for one in above],
            }
        )
    if LIST in needed:
        prefixes = [f"{one}{MAGIC}*" for one in above]
        statements.append(
            {
                "Sid": "FindObjects",
                "Effect": "Allow",
                "Action": LIST,
                "Resource": bucket,
                "Condition": {
                    "StringLike": {"s3:prefix": [below, *prefixes] if prefixes else below}
                },
            }
        )
    for sid, action in (
        ("FindUploads", LIST_UPLOADS),
        ("LookAtTheLifecycle", LIFECYCLE),
    ):
        if action in needed:
            statements.append({"Sid": sid, "Effect": "Allow", "Action": action, "Resource": bucket})
    return {"Version": POLICY_VERSION, "Statement": statements}


def directories_above(prefix: str) -> Iterator[str]:
    """``""`` and ``"a/"`` for ``a/b/``: the directories above a destination's."""
    for index in range(len(prefix)):
        if index == 0 or prefix[index - 1] == "/":
            yield prefix[:index]


def _literal(text: str) -> str:
    """A key's text where a policy has patterns: ``*``, ``?`` and ``$`` mean themselves (IAM
    reference, "Policy variables")."""
    return "".join(f"${{{c}}}" if c in "*?$" else c for c in text)
