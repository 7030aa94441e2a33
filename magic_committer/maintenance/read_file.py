"""Reading one file that a committer left, of any kind, by the same readers that committing uses.

So "valid" means: our own commit, recovery and marker code accept all of it. The file's name tells
its kind. If it does not, the content does: the kind of which it has the most fields. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, get_args

import orjson

from magic_committer.errors import FormatError
from magic_committer.hadoop.formats import (
    PENDING_BYTES_MAX,
    PENDINGSET_BYTES_MAX,
    SUCCESS_BYTES_MAX,
    Pending,
    PendingSet,
    SuccessData,
    decode_pending,
    decode_pendingset,
    decode_success,
)
from magic_committer.hadoop.json import Invalid, refuse_crowded
from magic_committer.hadoop.paths import (
    ALIVE,
    JSON,
    MAGIC_STREAM,
    PENDING_SUFFIX,
    PENDINGSET_SUFFIX,
    PLAN_PREFIX,
    RECORD,
    SUCCESS,
)
from magic_committer.maintenance.inspect import SIGN_BYTES_MAX, Sign
from magic_committer.protocol.ledger import LEDGER_BYTES_MAX, Ledger
from magic_committer.protocol.plan import PLAN_BYTES_MAX, Plan
from magic_committer.protocol.record import RECORD_BYTES_MAX, JobRecord

FileKind = Literal["pending", "pendingset", "success", "plan", "record", "alive", "ledger"]
FILE_KINDS: tuple[FileKind, ...] = get_args(FileKind)
FIELDS_MIN = 2
"""A document with fewer of a kind's own fields is not of that kind."""


File = Pending | PendingSet | SuccessData | Plan | JobRecord | Sign | Ledger


class _Form(NamedTuple):
    """How a kind is read, how large it may be, and the fields that tell it."""

    decode: Callable[[bytes, str], File]
    bytes_max: int
    own: str


_FORMS: Mapping[FileKind, _Form] = {
    "pending": _Form(
        decode_pending, PENDING_BYTES_MAX, "uploadId destinationKey uri etags bucket taskId"
    ),
    "pendingset": _Form(decode_pendingset, PENDINGSET_BYTES_MAX, "commits jobId extraData"),
    "success": _Form(
        decode_success, SUCCESS_BYTES_MAX,
        "committer timestamp filenames success metrics diagnostics hostname",
    ),
    "plan": _Form(Plan.decode, PLAN_BYTES_MAX, "sets deletes partitions nonce uuid job_id"),
    "record": _Form(JobRecord.decode, RECORD_BYTES_MAX, "terms state nonce uuid given_id started"),
    "alive": _Form(Sign.decode, SIGN_BYTES_MAX, "job role host pid"),
    "ledger": _Form(Ledger.decode, LEDGER_BYTES_MAX, "query nonce done done_by claim"),
}  # fmt: skip
BYTES_MAX: Mapping[FileKind, int] = {kind: one.bytes_max for kind, one in _FORMS.items()}
UNNAMED_BYTES_MAX = PENDINGSET_BYTES_MAX
"""The greatest size of a file whose content must tell its kind."""

_TASK_MANIFEST = "TaskManifest/1"


def kind_by_name(name: str) -> FileKind | None:
    """The kind that a file's name, or a key, tells; None if it tells none."""
    directory, _, last = name.rpartition("/")
    of_streams = MAGIC_STREAM in directory.split("/")[-2:]  # on a disk: a directory for each query
    if of_streams and last.endswith(JSON):
        return "ledger"
    if last.endswith(PENDINGSET_SUFFIX):
        return "pendingset"
    if last.endswith(PENDING_SUFFIX):
        return "pending"
    if last.startswith(PLAN_PREFIX) and last.endswith(JSON):
        return "plan"
    return {SUCCESS: "success", RECORD: "record", ALIVE: "alive"}.get(last)  # type: ignore[return-value]


def kind_by_content(data: bytes, source: str) -> FileKind:
    """The kind of which a document has the most fields; raise `FormatError` if it has of none."""
    document: dict[str, Any] = {}
    try:
        refuse_crowded(data)
        document = orjson.loads(data)
    except Invalid as error:
        raise FormatError(source, error.field, error.reason) from None
    except orjson.JSONDecodeError as error:
        reason = f"is not JSON: {error}" if data else "has no data (0 bytes)"
        raise FormatError(source, "", reason) from None
    if not isinstance(document, dict):
        raise FormatError(source, "", "is not a JSON object")
    if str(document.get("type", "")).endswith(_TASK_MANIFEST):
        raise FormatError(source, "type", "is of Hadoop's manifest committer, which has no uploads")
    score = {kind: len(set(one.own.split()) & set(document)) for kind, one in _FORMS.items()}
    best = max(FILE_KINDS, key=lambda kind: (score[kind], kind == "success"))
    if score[best] < FIELDS_MIN:
        raise FormatError(
            source, "", "has the fields of none of the files that committers write",
            hint=f"Say what it is: {', '.join(FILE_KINDS)}",
        )  # fmt: skip
    return best


def decode(kind: FileKind, data: bytes, source: str) -> File:
    """Read a file of that kind; raise `FormatError` with object, field and reason."""
    return _FORMS[kind].decode(data, source)
