"""``inspect``: files that a committer left, for people.

A file is read by the readers that committing uses: what is printed our own commit, recovery and
marker code accept wholly.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple

import click
from msgspec import Raw, json, structs

from magic_committer.cli.app import WORDS, root
from magic_committer.cli.output import TIMES, Column, Output
from magic_committer.cli.shell import Shell, command
from magic_committer.errors import FormatError, InvalidRequest, MagicError, OptionError
from magic_committer.errors.messages import bytes_words, counted
from magic_committer.hadoop import documents, paths
from magic_committer.hadoop.documents import Pending, PendingSet, SuccessData
from magic_committer.maintenance.inspect import SIGN_BYTES_MAX, Sign
from magic_committer.protocol.ledger import LEDGER_BYTES_MAX, Ledger
from magic_committer.protocol.plan import PLAN_BYTES_MAX, Plan, PlannedSet
from magic_committer.protocol.record import RECORD_BYTES_MAX, JobRecord
from magic_committer.stores.urls import local_path, scheme_of

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

FileKind = Literal["pending", "pendingset", "success", "plan", "record", "alive", "ledger"]
File = Pending | PendingSet | SuccessData | Plan | JobRecord | Sign | Ledger


class _Form(NamedTuple):
    """How a kind is read, how large it may be, and the names of its files."""

    decode: Callable[[bytes, str], File]
    bytes_max: int
    names: tuple[str, ...]


_FORMS: Mapping[FileKind, _Form] = {
    "ledger": _Form(
        Ledger.decode, LEDGER_BYTES_MAX,
        # On a disk each query has a directory.
        tuple(f"{paths.MAGIC_STREAM}/{name}{paths.JSON}" for name in ("*", "*/*")),
    ),
    "pending": _Form(
        documents.decode_pending, documents.PENDING_BYTES_MAX, (f"*{paths.PENDING_SUFFIX}",)
    ),
    "pendingset": _Form(
        documents.decode_pendingset, documents.PENDINGSET_BYTES_MAX,
        (f"*{paths.PENDINGSET_SUFFIX}",),
    ),
    "success": _Form(documents.decode_success, documents.SUCCESS_BYTES_MAX, (paths.SUCCESS,)),
    "plan": _Form(Plan.decode, PLAN_BYTES_MAX, (f"{paths.PLAN_PREFIX}*{paths.JSON}",)),
    "record": _Form(JobRecord.decode, RECORD_BYTES_MAX, (paths.RECORD,)),
    "alive": _Form(Sign.decode, SIGN_BYTES_MAX, (paths.ALIVE,)),
}  # fmt: skip


@command(root, "inspect", WORDS["inspect"], "s3://bucket/table/_SUCCESS", "./part-0.pending")
@click.argument("file", metavar="FILE|URL")
def inspect(shell: Shell, file: str) -> None:
    """Print a .pending, .pendingset, _SUCCESS, _plan-….json, _job.json or _alive.json.

    FILE is a local file, an s3:// or file:// URL, by the name that a committer gave it. One that
    our readers do not accept wholly ends with exit code 46, the field and the reason.
    """
    name = os.fspath(local_path(file)) if scheme_of(file) == "file" else file
    named = PurePosixPath(name)
    kind = next((k for k, form in _FORMS.items() if any(map(named.match, form.names))), None)
    if kind is None:
        known = ", ".join(pattern for form in _FORMS.values() for pattern in form.names)
        raise OptionError(
            f"{file} has the name of no file that committers write",
            hint=f"Their names are {known}: name the file so",
        )
    data = _read(shell, name, _FORMS[kind].bytes_max)
    _print(shell.output, name, kind, _FORMS[kind].decode(data, name))


def _read(shell: Shell, file: str, bytes_max: int) -> bytes:
    """The bytes of a file; raise `FormatError` if it is larger than ``bytes_max``."""
    too_large = FormatError(file, "", f"is larger than {bytes_max} bytes, as many as are read")
    if "://" in file:
        location = paths.parse_url(file)
        try:
            return shell.runtime(location.bucket).store.get(location.key, max_bytes=bytes_max).body
        except InvalidRequest as error:
            raise (too_large if error.code == "TooLarge" else error) from error
    try:
        with Path(file).open("rb") as opened:
            data = opened.read(bytes_max + 1)
    except (OSError, ValueError) as error:  # a name with a NUL is a ValueError
        raise MagicError(f"{file} cannot be read: {error}") from error
    if len(data) > bytes_max:
        raise too_large
    return data


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


def _measure(content: PendingSet | Plan) -> str:
    """How much it holds, in a few words."""
    if isinstance(content, PendingSet):
        size = sum(pending.length for pending in content.commits)
        return f"{counted(len(content.commits), 'file')}, {bytes_words(size)}"
    sets, files = counted(len(content.sets), "set"), counted(content.files, "file")
    return f"{sets}, {files}, {bytes_words(content.data_bytes)}"
