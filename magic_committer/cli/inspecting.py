"""``inspect``: files that a committer left, for people; and whether our readers accept them."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from magic_committer._quantities import bytes_words, counted, name_some
from magic_committer._runtime import Progress, ProgressFunction
from magic_committer.cli import exits
from magic_committer.cli.app import WORDS, root
from magic_committer.cli.output import Column, Output, Prose
from magic_committer.cli.plain import note
from magic_committer.cli.shell import Reach, Shell, command
from magic_committer.cli.values import time_words
from magic_committer.commit.success_marker import DIAGNOSTIC_COMPLETED, DIAGNOSTIC_UUID
from magic_committer.errors import FormatError, InvalidRequest, OptionError
from magic_committer.hadoop.formats import Pending, PendingSet, SuccessData
from magic_committer.hadoop.paths import parse_url
from magic_committer.maintenance.read_file import (
    BYTES_MAX,
    UNNAMED_BYTES_MAX,
    File,
    FileKind,
    Sign,
    decode,
    kind_by_content,
    kind_by_name,
)
from magic_committer.protocol.ledger import Ledger
from magic_committer.protocol.plan import Plan
from magic_committer.protocol.record import JobRecord
from magic_committer.protocol.strict import plain
from magic_committer.stores.urls import local_path, scheme_of

NAMED_MAX = 20
"""Names, counters and keys of one field that are shown to people."""
DELETES_NAMED_MAX = 100
"""Objects to be deleted that the summary of a plan names."""
STDIN = "-"
COUNTERS_FIRST = ("committer_", "multipart_upload_", "object_", "stream_write_", "op_")
"""Beginnings of the names of counters, the most telling first."""
TIMES = ("created", "timestamp", "started", "completed")
"""Fields that are seconds since the epoch."""

PENDING_FIELDS = (
    "key", "upload_id", "parts", "bytes", "created", "job", "task", "checksum", "bucket", "uri",
)  # fmt: skip
PENDING_COLUMNS = (
    Column("bytes", words=bytes_words, right=True),
    Column("parts", right=True),
    Column("checksum"),
    Column("task"),
    Column("upload_id", "upload"),
    Column("key"),
)
VALIDATION_COLUMNS = (
    Column("as", words=lambda kind: kind or "?"),
    Column("valid", words=lambda valid: "yes" if valid else "no"),
    Column("holds"),
    Column("why", reason=True),
    Column("file"),
)
SET_FIELDS = ("name", "etag", "task", "attempt")
SET_COLUMNS = tuple(map(Column, ("task", "attempt", "etag", "name")))


@command(
    root,
    "inspect",
    WORDS["inspect"],
    "s3://bucket/table/_SUCCESS",
    "--validate ./part-0.pending",
)
@click.argument("files", metavar="FILE|URL|-…", nargs=-1, required=True)
@click.option("--validate", is_flag=True, help="Only say whether our readers accept all of it.")
def inspect(shell: Shell, files: tuple[str, ...], validate: bool) -> int:
    """Print a .pending, .pendingset, _SUCCESS, _plan-….json, _job.json or _alive.json.

    FILE is a local file, an s3:// or file:// URL, or - for stdin. A file that is not valid ends
    with exit code 46 and the field and reason; --validate prints just that. Of several files each
    is told on one line.
    """
    files = tuple(map(_named, files))
    if len(files) > 1:
        return _tell_each(shell, files)
    seen = _look(shell, files[0])
    if isinstance(seen, int):
        return seen
    if validate:
        hint = seen.error.hint if seen.error is not None else ""
        words = f"{seen.words}. {hint}" if hint else seen.words
        shell.output.document("validation", seen.row(), [(seen.file, words)])
        return seen.code
    if seen.error is not None:
        raise seen.error
    assert seen.kind is not None
    assert seen.content is not None
    _print(shell.output, seen.file, seen.kind, seen.content)
    return exits.OK


def _named(given: str) -> str:
    """The path of a local file that is named by a URL; everything else as it is."""
    return os.fspath(local_path(given)) if scheme_of(given) == "file" else given


@dataclass(frozen=True, slots=True)
class ReadFile:
    """A file that was read: what it is, and its content or why that is not valid."""

    file: str
    kind: FileKind | None
    content: File | None
    error: FormatError | None

    @property
    def code(self) -> int:
        """The exit code for it."""
        return exits.OK if self.error is None else exits.BAD_STATE

    @property
    def problem(self) -> str:
        """Why it is not valid: the field and the reason."""
        error = self.error
        return "" if error is None else f"{error.field or 'document'}: {error.reason}"

    @property
    def words(self) -> str:
        """Whether it is valid, in words."""
        if self.content is None:
            return f"not valid: {self.problem}"
        return f"valid: a {self.kind}, {_measure(self.content)}"

    def row(self) -> dict[str, Any]:
        """For programs."""
        return {
            "file": self.file,
            "as": self.kind,
            "valid": self.error is None,
            "field": self.error.field if self.error is not None else "",
            "reason": self.error.reason if self.error is not None else "",
        }


def _look(shell: Shell, file: str) -> ReadFile | int:
    """Read one file; or the exit code, if it cannot be read."""
    kind = kind_by_name(file)
    try:
        data = _read(shell, file, BYTES_MAX[kind] if kind else UNNAMED_BYTES_MAX)
        if isinstance(data, int):
            return data
        kind = kind or kind_by_content(data, file)
        return ReadFile(file, kind, decode(kind, data, file), None)
    except FormatError as error:
        return ReadFile(file, kind, None, error)


def _tell_each(shell: Shell, files: tuple[str, ...]) -> int:
    """A line for each of several files."""
    reach = Reach(shell, many=True)
    counts: Counter[bool] = Counter()

    def found(progress: ProgressFunction) -> Iterator[dict[str, Any]]:
        for file in files:
            with reach.trying(file):
                seen = _look(shell, file)
                reach.codes.append(seen if isinstance(seen, int) else seen.code)
                if isinstance(seen, ReadFile):
                    counts[seen.error is None] += 1
                    progress(Progress("read", counts.total(), len(files), "files"))
                    holds = _measure(seen.content) if seen.content is not None else ""
                    yield {**seen.row(), "holds": holds, "why": seen.problem}

    shell.output.rows(
        "validation", VALIDATION_COLUMNS, shell.gather(found),
        fields=("file", "as", "valid", "field", "reason"),
        summary=lambda: {"files": counts.total(), "not_valid": counts[False]},
        closing=lambda: f"{counted(counts.total(), 'file')}, {counts[False]} of them not valid",
    )  # fmt: skip
    return reach.code


# Reading ------------------------------------------------------------------------------------------


def _read(shell: Shell, file: str, bytes_max: int) -> bytes | int:
    """The bytes of a file, at most ``bytes_max``; or the exit code, if it cannot be read.

    Raises:
        FormatError: it is larger.
    """
    if "://" in file:
        return _read_object(shell, file, bytes_max)
    try:
        if file == STDIN:
            data = sys.stdin.buffer.read(bytes_max + 1)
        else:
            with Path(file).open("rb") as opened:
                data = opened.read(bytes_max + 1)
    except (FileNotFoundError, NotADirectoryError):
        note(f"magic-committer: there is no file {file}")
        return exits.NOT_FOUND
    except IsADirectoryError as error:
        raise OptionError(f"{file} is a directory", hint="Name the files in it") from error
    except PermissionError:
        note(f"magic-committer: {file} may not be read")
        return exits.FORBIDDEN
    except (OSError, ValueError) as error:  # a name with a NUL is a ValueError
        note(f"magic-committer: {file} cannot be read: {error}")
        return exits.FAILED
    if len(data) > bytes_max:
        raise _too_large(file, bytes_max)
    return data


def _read_object(shell: Shell, url: str, bytes_max: int) -> bytes:
    location = parse_url(url)
    if not location.key or location.key.endswith("/"):
        raise OptionError(f"{url} is a directory", hint="Name the objects below it")
    try:
        return shell.runtime(location.bucket).store.get(location.key, max_bytes=bytes_max).body
    except InvalidRequest as error:
        if error.code != "TooLarge":
            raise
        raise _too_large(url, bytes_max) from error


def _too_large(file: str, bytes_max: int) -> FormatError:
    return FormatError(file, "", f"is larger than {bytes_max} bytes, as many as are read")


# Printing -----------------------------------------------------------------------------------------


def _print(output: Output, file: str, kind: FileKind, content: File) -> None:
    """A document; of a set or a plan its head, and a row for each upload or set."""
    many: tuple[str, tuple[Column, ...], tuple[str, ...]]
    match content:
        case PendingSet():
            summary = _set(content)
            rows = [_pending(one) for one in content.commits]
            many = ("pending", PENDING_COLUMNS, PENDING_FIELDS)
        case Plan():
            summary = _plan(content)
            rows = [plain(one) for one in content.sets]
            many = ("set", SET_COLUMNS, SET_FIELDS)
        case _:
            value = _document(content)
            output.document(kind, value, _lines(value))
            return
    if output.format == "table":
        output.document(kind, {}, _lines(summary))
        output.text("")
    name, columns, fields = many
    output.rows(
        name, columns, rows, fields=fields, summary=lambda: {"file": file, **summary},
        closing=lambda: _measure(content),
    )  # fmt: skip


def _document(content: File) -> dict[str, Any]:
    match content:
        case Pending():
            return {
                **_pending(content),
                "text": content.text,
                "sealed": content.sealed,
                "extra": dict(content.extra_data),
            }
        case SuccessData():
            return _success(content)
    value: dict[str, Any] = plain(content)
    return value


def _lines(value: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """A document for people: name and words of each field that holds something."""
    for name, held in value.items():
        words = name.replace("_", " ")
        if isinstance(held, Mapping):
            for inner, told in _first(held):
                yield f"{words}: {inner}", str(told)
        elif isinstance(held, list | tuple):
            named = [one["key"] if isinstance(one, Mapping) else str(one) for one in held]
            yield words, Prose(f"{len(held)}: {name_some(named, NAMED_MAX)}" if held else "")
        elif isinstance(held, bool):
            yield words, "yes" if held else "no"
        elif name in TIMES and held:
            yield words, time_words(held)
        elif name == "bytes":
            yield words, bytes_words(held)
        elif held not in (None, ""):
            yield words, str(held)


def _measure(content: File) -> str:
    """How much it holds, in a few words."""
    match content:
        case Pending():
            return f"{counted(len(content.etags), 'part')}, {bytes_words(content.length)}"
        case PendingSet():
            files = counted(len(content.commits), "file")
            seal = ", sealed" if content.sealed else ""
            return f"{files}, {bytes_words(sum(c.length for c in content.commits))}{seal}"
        case Plan():
            files = counted(content.files, "file")
            sets = counted(len(content.sets), "set")
            return f"{sets}, {files}, {bytes_words(content.data_bytes)}"
        case SuccessData():
            return f"by {content.committer or 'a committer without a name'}"
        case JobRecord():
            return f"of job {content.id}, {content.state}"
        case Sign():
            return f"of job {content.job}"
        case Ledger():
            done = "no batch" if content.done is None else f"batch {content.done}"
            return f"of query {content.query}, {done} published"


def _pending(one: Pending) -> dict[str, Any]:
    """A pending as a row; ``created`` in seconds, as all times are."""
    algorithms = sorted({part.checksum_algorithm or "" for part in one.etags} - {""})
    return {
        "key": one.destination_key,
        "upload_id": one.upload_id,
        "parts": len(one.etags),
        "bytes": one.length,
        "created": one.created / 1000,
        "job": one.job_id,
        "task": one.task_id,
        "checksum": "+".join(algorithms),
        "bucket": one.bucket,
        "uri": one.uri,
    }


def _set(one: PendingSet) -> dict[str, Any]:
    return {
        "job": one.job_id,
        "files": len(one.commits),
        "bytes": sum(commit.length for commit in one.commits),
        "sealed": one.sealed,
        "extra_data": dict(one.extra_data),
        "statistics": _counters(one.iostatistics),
    }


def _plan(plan: Plan) -> dict[str, Any]:
    return {
        "job": plan.job_id,
        "uuid": plan.uuid,
        "nonce": plan.nonce,
        "sets": len(plan.sets),
        "files": plan.files,
        "bytes": plan.data_bytes,
        "deletes": len(plan.deletes),
        "deletes_named": [plain(ref) for ref in plan.deletes[:DELETES_NAMED_MAX]],
        "partitions": list(plan.partitions),
        "marker": plain(plan.marker) if plan.marker else None,
    }


def _success(one: SuccessData) -> dict[str, Any]:
    try:
        completed: float | None = float(one.diagnostics[DIAGNOSTIC_COMPLETED])
    except (KeyError, ValueError):
        completed = None
    return {
        "success": one.success,
        "committer": one.committer,
        "job": one.job_id,
        "job_id_source": one.job_id_source,
        "timestamp": one.timestamp / 1000,
        "hostname": one.hostname,
        "description": one.description,
        "state": one.state,
        "stage": one.stage,
        "uuid": one.diagnostics.get(DIAGNOSTIC_UUID, ""),
        "completed": completed,
        "files_named": len(one.filenames),
        "filenames": list(one.filenames),
        "metrics": dict(one.metrics),
        "diagnostics": dict(one.diagnostics),
        "statistics": _counters(one.iostatistics),
    }


def _counters(statistics: Mapping[str, Any]) -> dict[str, int]:
    """The counters of Hadoop's statistics that are numbers and not 0. Nothing there is checked by
    the readers, as nothing depends on it."""
    counters = statistics.get("counters")
    if not isinstance(counters, dict):
        return {}
    return {
        name: value
        for name, value in counters.items()
        if isinstance(value, int) and not isinstance(value, bool) and value
    }


def _first(counters: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The most telling values that are not 0 or empty."""

    def place(item: tuple[str, Any]) -> tuple[int, str]:
        name = item[0]
        begins = [n for n, start in enumerate(COUNTERS_FIRST) if name.startswith(start)]
        return (begins[0] if begins else len(COUNTERS_FIRST), name)

    return sorted(((n, v) for n, v in counters.items() if v not in (0, "", None)), key=place)[
        :NAMED_MAX
    ]
