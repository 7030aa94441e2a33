"""``inspect``: files that a committer left, for people; and whether our readers accept them.

A file is read by the readers that committing uses, so "valid" means: our own commit, recovery and
marker code accept all of it.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple, get_args

import click
import orjson
from msgspec import Raw, json, structs

from magic_committer.cli import exits
from magic_committer.cli.app import WORDS, root
from magic_committer.cli.output import TIMES, Column, Output
from magic_committer.cli.shell import Reach, Shell, command
from magic_committer.errors import FormatError, InvalidRequest, MagicError, OptionError
from magic_committer.errors.messages import bytes_words, counted
from magic_committer.hadoop import documents, paths
from magic_committer.hadoop.documents import Pending, PendingSet, SuccessData
from magic_committer.maintenance.inspect import SIGN_BYTES_MAX, Sign
from magic_committer.protocol.ledger import LEDGER_BYTES_MAX, Ledger
from magic_committer.protocol.plan import PLAN_BYTES_MAX, Plan, PlannedSet
from magic_committer.protocol.record import RECORD_BYTES_MAX, JobRecord
from magic_committer.stores.urls import local_path, scheme_of

STDIN = "-"
NOT_TOLD = ("commits", "sets", "etags")
"""Fields that are rows of their own."""
HADOOPS = ("version", "name", "part_count", "iostatistics")
"""Fields of Hadoop's files that are shown otherwise, or always the same."""

PENDING_FIELDS = ("key", "upload_id", "parts", "bytes", "created", "job", "task", "checksum")
PENDING_COLUMNS = (
    Column("bytes", words=bytes_words, right=True),
    Column("parts", right=True),
    *map(Column, ("checksum", "task")),
    Column("upload_id", "upload"),
    Column("key"),
)
SET_FIELDS = ("name", "etag", "task", "attempt")
SET_COLUMNS = tuple(map(Column, ("task", "attempt", "etag", "name")))
FIELDS = ("file", "as", "valid", "field", "reason")
COLUMNS = (
    Column("as", words=lambda kind: kind or "?"),
    Column("valid", words=lambda valid: "yes" if valid else "no"),
    Column("holds"),
    Column("why", reason=True),
    Column("file"),
)

FileKind = Literal["pending", "pendingset", "success", "plan", "record", "alive", "ledger"]
FILE_KINDS: tuple[FileKind, ...] = get_args(FileKind)
File = Pending | PendingSet | SuccessData | Plan | JobRecord | Sign | Ledger


class _Form(NamedTuple):
    """How a kind is read, how large it may be, the names that tell it, and the fields."""

    decode: Callable[[bytes, str], File]
    bytes_max: int
    names: tuple[str, ...]
    own: str


_FORMS: Mapping[FileKind, _Form] = {
    "ledger": _Form(
        Ledger.decode, LEDGER_BYTES_MAX,
        # On a disk each query has a directory.
        tuple(f"{paths.MAGIC_STREAM}/{name}{paths.JSON}" for name in ("*", "*/*")),
        "query nonce done done_by claim",
    ),
    "pending": _Form(
        documents.decode_pending, documents.PENDING_BYTES_MAX, (f"*{paths.PENDING_SUFFIX}",),
        "uploadId destinationKey uri etags bucket taskId",
    ),
    "pendingset": _Form(
        documents.decode_pendingset, documents.PENDINGSET_BYTES_MAX,
        (f"*{paths.PENDINGSET_SUFFIX}",), "commits jobId extraData",
    ),
    "success": _Form(
        documents.decode_success, documents.SUCCESS_BYTES_MAX, (paths.SUCCESS,),
        "committer timestamp filenames success metrics diagnostics hostname",
    ),
    "plan": _Form(
        Plan.decode, PLAN_BYTES_MAX, (f"{paths.PLAN_PREFIX}*{paths.JSON}",),
        "sets deletes partitions nonce uuid job_id",
    ),
    "record": _Form(
        JobRecord.decode, RECORD_BYTES_MAX, (paths.RECORD,),
        "terms state nonce uuid given_id started",
    ),
    "alive": _Form(Sign.decode, SIGN_BYTES_MAX, (paths.ALIVE,), "job role host pid"),
}  # fmt: skip
FIELDS_MIN = 2
"""A document with fewer of a kind's own fields is not of that kind."""
UNNAMED_BYTES_MAX = documents.PENDINGSET_BYTES_MAX
"""The greatest size of a file whose content must tell its kind."""
_TASK_MANIFEST = "TaskManifest/1"


@command(
    root, "inspect", WORDS["inspect"], "s3://bucket/table/_SUCCESS", "--validate ./part-0.pending"
)
@click.argument("files", metavar="FILE|URL|-…", nargs=-1, required=True)
@click.option("--validate", is_flag=True, help="Only say whether our readers accept all of it.")
def inspect(shell: Shell, files: tuple[str, ...], validate: bool) -> int:
    """Print a .pending, .pendingset, _SUCCESS, _plan-….json, _job.json or _alive.json.

    FILE is a local file, an s3:// or file:// URL, or - for stdin. A file that is not valid ends
    with exit code 46 and the field and reason; --validate prints just that. Each of several files
    has one line.
    """
    names = [os.fspath(local_path(one)) if scheme_of(one) == "file" else one for one in files]
    if len(names) > 1:
        return _tell_each(shell, names)
    (file,) = names
    kind, content = _look(shell, file)
    if validate:
        row = _row(file, kind, content)
        words = f"valid: a {kind}, {row['holds']}" if row["valid"] else f"not valid: {row['why']}"
        shell.output.document("validation", {name: row[name] for name in FIELDS})
        shell.output.text(f"{file}  {words}")
        return exits.OK if row["valid"] else exits.BAD_STATE
    if isinstance(content, FormatError):
        raise content
    _print(shell.output, file, str(kind), content)
    return exits.OK


def _tell_each(shell: Shell, files: list[str]) -> int:
    """A line for each of several files."""
    reach = Reach(shell, many=True)
    counts: Counter[bool] = Counter()

    def found() -> Iterator[dict[str, Any]]:
        for file in files:
            with reach.trying(file):
                row = _row(file, *_look(shell, file))
                counts[row["valid"]] += 1
                reach.codes.append(exits.OK if row["valid"] else exits.BAD_STATE)
                yield row

    shell.output.rows(
        "validation", COLUMNS, found(), fields=FIELDS,
        summary=lambda: {"files": counts.total(), "not_valid": counts[False]},
        closing=lambda: f"{counted(counts.total(), 'file')}, {counts[False]} of them not valid",
    )  # fmt: skip
    return reach.code


def _row(file: str, kind: FileKind | None, content: File | FormatError) -> dict[str, Any]:
    row = {"file": file, "as": kind, "valid": True, "field": "", "reason": "", "why": ""}
    if not isinstance(content, FormatError):
        return {**row, "holds": _measure(content)}
    why = f"{content.field or 'document'}: {content.reason}"
    return {**row, "valid": False, "field": content.field, "reason": content.reason, "why": why}


def _look(shell: Shell, file: str) -> tuple[FileKind | None, File | FormatError]:
    """Read one file: its kind, by its name or its content, and its content or why that is not
    valid."""
    named = PurePosixPath(file)
    kind = next((k for k, form in _FORMS.items() if any(map(named.match, form.names))), None)
    try:
        data = _read(shell, file, _FORMS[kind].bytes_max if kind else UNNAMED_BYTES_MAX)
        kind = kind or kind_by_content(data, file)
        return kind, _FORMS[kind].decode(data, file)
    except FormatError as error:
        return kind, error


def _read(shell: Shell, file: str, bytes_max: int) -> bytes:
    """The bytes of a file; raise `FormatError` if it is larger than ``bytes_max``."""
    too_large = FormatError(file, "", f"is larger than {bytes_max} bytes, as many as are read")
    if "://" in file:
        location = paths.parse_url(file)
        if not location.key or location.key.endswith("/"):
            raise OptionError(f"{file} is a directory", hint="Name the objects below it")
        try:
            return shell.runtime(location.bucket).store.get(location.key, max_bytes=bytes_max).body
        except InvalidRequest as error:
            raise (too_large if error.code == "TooLarge" else error) from error
    try:
        if file == STDIN:
            data = sys.stdin.buffer.read(bytes_max + 1)
        else:
            with Path(file).open("rb") as opened:
                data = opened.read(bytes_max + 1)
    except IsADirectoryError as error:
        raise OptionError(f"{file} is a directory", hint="Name the files in it") from error
    except (OSError, ValueError) as error:  # a name with a NUL is a ValueError
        raise MagicError(f"{file} cannot be read: {error}") from error
    if len(data) > bytes_max:
        raise too_large
    return data


def kind_by_content(data: bytes, source: str) -> FileKind:
    """The kind of which a document has the most fields; raise `FormatError` if it has of none."""
    document: Any = None
    try:
        documents.refuse_crowded(data)
        with suppress(orjson.JSONDecodeError):
            document = orjson.loads(data.partition(b"\n")[0])  # a plan is lines
        if not isinstance(document, dict):
            document = orjson.loads(data)
    except documents.Invalid as error:
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
        reason = f"has the fields of none of the files that committers write: {', '.join(_FORMS)}"
        raise FormatError(source, "", reason)
    return best


# Printing -----------------------------------------------------------------------------------------


def _print(output: Output, file: str, kind: str, content: File) -> None:
    """A document; of a set or a plan its head, and a row for each upload or set."""
    head = _document(content)
    if not isinstance(content, PendingSet | Plan):
        output.document(kind, head, head)
        return
    if output.format == "table":
        output.document(kind, {}, head)
        output.text("")
    print_rows = partial(
        output.rows, summary=lambda: {"file": file, **head}, closing=lambda: _measure(content)
    )
    if isinstance(content, Plan):
        print_rows("set", SET_COLUMNS, map(_document, content.sets), fields=SET_FIELDS)
    else:
        found = map(_document, content.commits)
        print_rows("pending", PENDING_COLUMNS, found, fields=PENDING_FIELDS)


def _document(content: File | PlannedSet) -> dict[str, Any]:
    """The fields of a file as its reader has them, with times in seconds."""
    told: dict[str, Any]
    if isinstance(content, Plan):  # its rows stay in its bytes
        told = {one.name: getattr(content, one.name) for one in fields(content)}
        told["deletes"] = [documents.plain(one) for one in content.deletes]
        told["marker"] = content.marker and documents.plain(content.marker)
    elif not isinstance(content, Pending | PendingSet | SuccessData):
        told = documents.plain(content)
    else:
        told = {n: v for n, v in structs.asdict(content).items() if n not in HADOOPS}
        statistics = content.iostatistics
        if isinstance(statistics, Raw):
            statistics = json.decode(statistics)
        told["statistics"] = (statistics or {}).get("counters")
        told |= {name: "" for name in ("date", "text") if told.get(name, "") is None}
    for name in ("job", "task"):
        if f"{name}_id" in told:
            told[name] = told.pop(f"{name}_id")
    if isinstance(content, Pending | SuccessData):
        told |= {name: told[name] / 1000 for name in TIMES if name in told}
    if isinstance(content, Pending):
        checksums = {part.checksum_algorithm or "" for part in content.parts} - {""}
        told |= {"key": told.pop("destination_key"), "bytes": told.pop("length")}
        told |= {"parts": len(content.etags), "checksum": "+".join(sorted(checksums))}
    if isinstance(content, PendingSet):
        told |= {"files": len(content.commits), "bytes": sum(p.length for p in content.commits)}
    return {name: value for name, value in told.items() if name not in NOT_TOLD}


def _measure(content: File) -> str:
    """How much it holds, in a few words."""
    match content:
        case Pending():
            return f"{counted(len(content.etags), 'part')}, {bytes_words(content.length)}"
        case PendingSet():
            size = sum(pending.length for pending in content.commits)
            return f"{counted(len(content.commits), 'file')}, {bytes_words(size)}"
        case Plan():
            sets, files = counted(len(content.sets), "set"), counted(content.files, "file")
            return f"{sets}, {files}, {bytes_words(content.data_bytes)}"
        case SuccessData():
            return f"committer: {content.committer}"
        case JobRecord():
            return f"id: {content.id}"
        case Ledger():
            return f"query: {content.query}"
    return f"job: {content.job}"
