"""Which role needs which S3 actions, and the smallest policy that allows them. Pure.

This is the one source for the README's policy, for ``doctor --policy`` and for the doctor's
questions; `tests/cli/test_doctor.py` runs jobs that may do no more. Roles:

* ``writer``: a process that only runs tasks of jobs that others started.
* ``committer``: a driver: it starts, commits, aborts and recovers jobs. It may run tasks, too.
* ``cleaner``: `magic_committer.cleanup` from cron. A record says whether the job of an upload is
  over. It may be in any directory above the upload, so those are read as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

from magic_committer.hadoop.paths import MAGIC, MAGIC_JOB_PREFIX, RECORD, Destination

Role = Literal["writer", "committer", "cleaner"]
ROLES: tuple[Role, ...] = get_args(Role)
_NO_TASK: tuple[Role, ...] = ("committer", "cleaner")

PUT, GET, DELETE = "s3:PutObject", "s3:GetObject", "s3:DeleteObject"
ABORT, PARTS = "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"
LIST, LIST_UPLOADS = "s3:ListBucket", "s3:ListBucketMultipartUploads"
LIFECYCLE = "s3:GetLifecycleConfiguration"

POLICY_VERSION = "2012-10-17"
"""The version of the policy language (IAM reference), not a version of ours."""


@dataclass(frozen=True, slots=True)
class Permission:
    """One S3 action (Service Authorization Reference), what it is needed for, and by whom."""

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
"""Every action that the library uses, except those of ``lifecycle ensure``."""

_ON_OBJECTS = (PUT, GET, DELETE, ABORT, PARTS)


def actions_of(role: Role) -> frozenset[str]:
    """The actions that a role needs."""
    return frozenset(one.action for one in PERMISSIONS if role in one.roles)


def policy(role: Role, dest: Destination) -> dict[str, Any]:
    """The smallest IAM policy for a role under a destination, as JSON for IAM.

    It is for AWS's ordinary partition: elsewhere replace ``arn:aws`` (``arn:aws-cn``). It does not
    contain what encryption by KMS, tags and ACLs need (README, "Permissions").
    """
    needed = actions_of(role)
    bucket = f"arn:aws:s3:::{dest.bucket}"
    below = f"{_literal(dest.prefix)}*"
    above = list(map(_literal, directories_above(dest.prefix))) if role == "cleaner" else []
    prefixes = [below, *(f"{one}{MAGIC}*" for one in above)]
    within = {"StringLike": {"s3:prefix": prefixes if above else below}}
    statements: list[dict[str, Any]] = [
        {
            "Sid": "FilesRecordsAndUploads",
            "Action": [action for action in _ON_OBJECTS if action in needed],
            "Resource": f"{bucket}/{below}",
        }
    ]
    if above:
        records = [f"{bucket}/{one}{MAGIC_JOB_PREFIX}*/{RECORD}" for one in above]
        statements.append({"Sid": "RecordsAbove", "Action": GET, "Resource": records})
    for sid, action in (
        ("FindObjects", LIST),
        ("FindUploads", LIST_UPLOADS),
        ("LookAtTheLifecycle", LIFECYCLE),
    ):
        if action in needed:
            condition = {"Condition": within} if action == LIST else {}
            statements.append({"Sid": sid, "Action": action, "Resource": bucket, **condition})
    allowed = [{"Sid": one.pop("Sid"), "Effect": "Allow", **one} for one in statements]
    return {"Version": POLICY_VERSION, "Statement": allowed}


def directories_above(prefix: str) -> Iterator[str]:
    """``""`` and ``"a/"`` for ``a/b/``: the directories above a destination's."""
    for index in range(len(prefix)):
        if index == 0 or prefix[index - 1] == "/":
            yield prefix[:index]


def _literal(text: str) -> str:
    """Quote a key's text for a policy, which has patterns: ``*``, ``?`` and ``$`` then mean
    themselves (IAM reference, "Policy variables")."""
    return "".join(f"${{{c}}}" if c in "*?$" else c for c in text)
