"""``inspect``: one file that a committer left, for people; and whether our readers accept it."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from magic_committer._quantities import bytes_words, counted
from magic_committer._runtime import Progress, ProgressFunction
from magic_committer.cli import exits
from magic_committer.cli.app import WORDS, root
from magic_committer.cli.output import Output, Prose
from magic_committer.cli.plain import note
from magic_committer.cli.quantities import time_words
from magic_committer.cli.reach import Reach, recursive, stopped
from magic_committer.cli.shell import Shell, command
from magic_committer.cli.table import Column
from magic_committer.commit.success_marker import DIAGNOSTIC_COMPLETED, DIAGNOSTIC_UUID
from magic_committer.errors import FormatError, InvalidRequest, OptionError
from magic_committer.hadoop.formats import Pending, PendingSet, SuccessData
from magic_committer.hadoop.paths import Destination, parse_url
from magic_committer.maintenance.below import Flat, is_committers
from magic_committer.maintenance.read_file import (
    BYTES_MAX,
    FILE_KINDS,
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

ROWS_SHOWN_MAX = 200
"""Files of a pendingset, or sets of a plan, in a table; the formats for programs have all."""
NAMED_MAX = 20
"""File names of a `_SUCCESS`, and counters, that are shown to people."""
DELETES_NAMED_MAX = 100
"""Objects to be deleted that the summary of a plan names."""
STDIN = "-"
COUNTERS_FIRST = ("committer_", "multipart_upload_", "object_", "stream_write_", "op_")
"""Beginnings of the names of counters, the most telling first."""

PENDING_FIELDS = (
    "key", "upload_id", "parts", "bytes", "created", "job", "task", "checksum", "bucket", "uri",
)  # fmt: skip
PENDING_COLUMNS = (
    Column("bytes", words=bytes_words, right=True),
    Column("parts", right=True, spare=3),
    Column("checksum", spare=2),
    Column("task", spare=1),
    Column("upload_id", "upload", spare=4),
    Column("key"),
)
VALIDATION_COLUMNS = (
    Column("as", words=lambda kind: kind or "?"),
    Column("valid", words=lambda valid: "yes" if valid else "no"),
    Column("holds", spare=1),
    Column("why", reason=True),
    Column("file"),
)
SET_FIELDS = ("name", "etag", "task", "attempt")
SET_COLUMNS = (
    Column("task"),
    Column("attempt", spare=1),
    Column("etag", spare=2),
    Column("name"),
)


@command(
    root,
    "inspect",
    WORDS["inspect"],
    "s3://bucket/table/_SUCCESS",
    "s3://bucket/table --recursive",
    "--validate ./part-0.pending",
)
@click.argument("files", metavar="FILE|URL|-…", nargs=-1, required=True)
@click.option("--validate", is_flag=True, help="Only say whether our readers accept all of it.")
@click.option(
    "--as", "kind", type=click.Choice(FILE_KINDS),
    help="What it is, where neither name nor content tells.",
)  # fmt: skip
@recursive
def inspect(
    shell: Shell,
    files: tuple[str, ...],
    validate: bool,
    kind: FileKind | None,
    deep: bool,
    objects_max: int,
) -> int:
    """Print a .pending, .pendingset, _SUCCESS, _plan-….json, _job.json or _alive.json.

    FILE is a local file, an s3:// or file:// URL, or - for stdin. A file that is not valid ends
    with exit code 46 and the field and reason; --validate prints just that. Of several files, and
    with --recursive of all such files below a directory, each is told on one line.
    """
    files = tuple(map(_named, files))
    if deep or len(files) > 1:
        return _tell_each(shell, files, kind, objects_max if deep else None)
    (file,) = files
    seen = _look(shell, file, kind)
    if isinstance(seen, int):
        return seen
    if seen.error is not None and not validate:
        raise seen.error
    if seen.error is not None or validate:
        hint = seen.error.hint if seen.error is not None else ""
        words = f"{seen.words}. {hint}" if hint else seen.words
        shell.output.document("validation", seen.row(), [(file, words)])
        return seen.code
    assert seen.kind is not None
    assert seen.content is not None
    _print(shell.output, file, seen.kind, seen.content)
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


def _look(shell: Shell, file: str, kind: FileKind | None) -> ReadFile | int:
    """Read one file; or the exit code, if it cannot be read."""
    try:
        kind = kind or kind_by_name(file)
        data = _read(shell, file, BYTES_MAX[kind] if kind else UNNAMED_BYTES_MAX)
        if isinstance(data, int):
            return data
        kind = kind or kind_by_content(data, file)
        return ReadFile(file, kind, decode(kind, data, file), None)
    except FormatError as error:
        return ReadFile(file, kind, None, error)


def _tell_each(
    shell: Shell, files: tuple[str, ...], kind: FileKind | None, objects_max: int | None
) -> int:
    """A line for each of several files, or of those below directories."""
    reach = Reach(shell, many=True)
    counts: Counter[bool] = Counter()

    def told(progress: ProgressFunction) -> Iterator[dict[str, Any]]:
        for given in files:
            with reach.trying(given):
                for file in _below(shell, reach, given, objects_max, progress):
                    with reach.trying(file):
                        seen = _look(shell, file, kind)
                        reach.add(seen if isinstance(seen, int) else seen.code)
                        if isinstance(seen, ReadFile):
                            counts[seen.error is None] += 1
                            progress(Progress("read", counts.total(), None, "files"))
                            holds = _measure(seen.content) if seen.content is not None else ""
                            yield {**seen.row(), "holds": holds, "why": seen.problem}

    shell.output.rows(
        "validation", VALIDATION_COLUMNS, shell.gather(told),
        fields=("file", "as", "valid", "field", "reason"),
        summary=lambda: {"files": counts.total(), "not_valid": counts[False]},
        closing=lambda: f"{counted(counts.total(), 'file')}, {counts[False]} of them not valid",
    )  # fmt: skip
    return reach.code


def _below(
    shell: Shell,
    reach: Reach,
    given: str,
    objects_max: int | None,
    progress: ProgressFunction,
) -> Iterator[str]:
    """The files to be read: the one that was given; with ``--recursive`` those of a committer below
    a directory, by their names."""
    if objects_max is None or given == STDIN or kind_by_name(given) is not None:
        yield given
    elif "://" in given:
        path = Destination.parse(given)
        listed = Flat(shell.runtime(path.bucket, progress), path, objects_max)
        for info in listed:
            if is_committers(info) and kind_by_name(info.key) is not None:
                yield f"s3://{path.bucket}/{info.key}"
        for line in stopped(path, listed):
            note(f"magic-committer: {line}")
            reach.add(exits.BAD_STATE)
    elif Path(given).is_dir():
        for directory, _, names in os.walk(given):
            for name in sorted(names):
                if kind_by_name(name) is not None:
                    yield os.path.join(directory, name)
    else:
        yield given


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
        raise OptionError(
            f"{file} is a directory", hint="Name one file; or add --recursive for all in it"
        ) from error
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
        raise OptionError(
            f"{url} is a directory", hint="Name one object; or add --recursive for all below it"
        )
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
    match content:
        case Pending():
            row = _pending(content)
            output.document(kind, row, _pending_lines(content, row))
        case PendingSet():
            _print_pendingset(output, file, content)
        case SuccessData():
            output.document(kind, _success(content), _success_lines(content))
        case Plan():
            _print_plan(output, file, content)
        case JobRecord():
            output.document(kind, plain(content), _record_lines(content))
        case Sign():
            lines = [
                ("job", content.job),
                ("said by", f"{content.role} on {content.host}, process {content.pid}"),
            ]
            output.document(kind, plain(content), lines)
        case Ledger():
            output.document(kind, plain(content), _ledger_lines(content))


def _ledger_lines(ledger: Ledger) -> Iterator[tuple[str, str]]:
    claim = ledger.claim
    yield "query", ledger.query
    yield "published", "no batch yet" if ledger.done is None else f"batch {ledger.done}"
    yield "published by job", ledger.done_by
    yield "claimed", f"batch {claim.number}, by job {claim.job_id}" if claim is not None else ""


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
            return f"{counted(len(content.sets), 'set')}, {counted(content.files, 'file')}"
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


def _pending_lines(one: Pending, row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "destination", f"s3://{one.bucket}/{one.destination_key}"
    yield "upload", one.upload_id
    yield "parts", str(row["parts"])
    yield "bytes", _bytes(one.length)
    yield "created", time_words(row["created"])
    yield "job", one.job_id
    yield "task", one.task_id
    yield "checksum of parts", row["checksum"]
    for name, value in list(one.extra_data.items())[:NAMED_MAX]:
        yield f"extra: {name}", value
    yield "written to", one.uri
    yield "text", one.text
    yield "sealed", "yes" if one.sealed else "no"


def _print_pendingset(output: Output, file: str, one: PendingSet) -> None:
    size = sum(commit.length for commit in one.commits)
    summary = {
        "file": file,
        "job": one.job_id,
        "files": len(one.commits),
        "bytes": size,
        "sealed": one.sealed,
        "extra_data": dict(one.extra_data),
        "statistics": _counters(one.iostatistics),
    }

    lines = [
        ("job", one.job_id),
        *((f"extra: {name}", value) for name, value in list(one.extra_data.items())[:NAMED_MAX]),
        ("sealed", "yes" if one.sealed else "no"),
    ]
    _print_rows(
        output, "pending", lines, PENDING_COLUMNS, PENDING_FIELDS,
        [_pending(commit) for commit in one.commits], summary,
        f"{counted(len(one.commits), 'file')}, {_bytes(size)}",
    )  # fmt: skip


def _print_plan(output: Output, file: str, plan: Plan) -> None:
    deletes = [plain(ref) for ref in plan.deletes[:DELETES_NAMED_MAX]]
    summary = {
        "file": file,
        "job": plan.job_id,
        "uuid": plan.uuid,
        "nonce": plan.nonce,
        "sets": len(plan.sets),
        "files": plan.files,
        "bytes": plan.data_bytes,
        "deletes": len(plan.deletes),
        "deletes_named": deletes,
        "partitions": list(plan.partitions),
        "marker": plain(plan.marker) if plan.marker else None,
    }
    lines = [
        ("job", plan.job_id),
        ("uuid", plan.uuid),
        ("nonce", plan.nonce),
        ("partitions", _some(plan.partitions)),
        (
            "deletes",
            Prose(f"{len(plan.deletes)}: {_some([d['key'] for d in deletes])}" if deletes else ""),
        ),
        ("old marker", plan.marker.key if plan.marker else ""),
    ]
    _print_rows(
        output, "set", lines, SET_COLUMNS, SET_FIELDS, [plain(one) for one in plan.sets], summary,
        f"{counted(len(plan.sets), 'set')}, {counted(plan.files, 'file')},"
        f" {_bytes(plan.data_bytes)}",
    )  # fmt: skip


def _print_rows(
    output: Output,
    kind: str,
    lines: list[tuple[str, str]],
    columns: tuple[Column, ...],
    fields: tuple[str, ...],
    rows: list[dict[str, Any]],
    summary: Mapping[str, Any],
    closing: str,
) -> None:
    """A file of many rows: for people its head, its first rows and how many there are."""
    if output.format == "table":
        output.document(kind, {}, lines)
        output.text("")
        if more := len(rows) - ROWS_SHOWN_MAX:
            closing += f" ({more} are not shown: --format jsonl has all)" if more > 0 else ""
        rows = rows[:ROWS_SHOWN_MAX]
    output.rows(
        kind, columns, rows, fields=fields, summary=lambda: summary, closing=lambda: closing
    )


def _success(one: SuccessData) -> dict[str, Any]:
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
        "completed": _completed(one),
        "files_named": len(one.filenames),
        "filenames": list(one.filenames),
        "metrics": dict(one.metrics),
        "diagnostics": dict(one.diagnostics),
        "statistics": _counters(one.iostatistics),
    }


def _success_lines(one: SuccessData) -> Iterator[tuple[str, str]]:
    yield "success", "yes" if one.success else "no"
    yield "committer", one.committer
    yield "job", f"{one.job_id} ({one.job_id_source})" if one.job_id_source else one.job_id
    yield "uuid", one.diagnostics.get(DIAGNOSTIC_UUID, "")
    yield "written", time_words(one.timestamp / 1000)
    if (completed := _completed(one)) is not None:
        yield "completed", f"{time_words(completed)} by the store's clock"
    yield "host", one.hostname
    yield "description", one.description
    yield "state", " ".join(filter(None, (one.state, one.stage)))
    names = f"{len(one.filenames)}: {_some(one.filenames)}" if one.filenames else "none"
    yield "names", Prose(names)
    for name, count in _first(one.metrics):
        yield f"metric: {name}", str(count)
    beside = {n: c for n, c in _counters(one.iostatistics).items() if n not in one.metrics}
    for name, count in _first(beside):
        yield f"counter: {name}", str(count)


def _completed(one: SuccessData) -> float | None:
    try:
        return float(one.diagnostics[DIAGNOSTIC_COMPLETED])
    except (KeyError, ValueError):
        return None


def _record_lines(one: JobRecord) -> Iterator[tuple[str, str]]:
    yield "job", f"{one.id} ({'given' if one.given_id else 'drawn'})"
    yield "uuid", one.uuid
    yield "state", str(one.state)
    yield "outcome", one.outcome
    yield "started", f"{time_words(one.started)} by its driver's clock"
    yield "terms", ", ".join(f"{name}={value}" for name, value in plain(one.terms).items())
    if one.decider is not None:
        yield "decided by", f"{one.decider.role} on {one.decider.host}, process {one.decider.pid}"
    yield "adopted from", one.adopted
    yield "checkpoint", f"hash {one.checkpoint}" if one.checkpoint else ""
    yield "publishes", str(one.batch) if one.batch is not None else ""
    if one.plan is not None:
        yield "plan", one.plan.key
    if one.marker is not None:
        yield "marker before", one.marker.key if one.marker.etag else "none"
    yield "nonce", one.nonce


# Words --------------------------------------------------------------------------------------------


def _bytes(size: int) -> str:
    return bytes_words(size) if size < 1024 else f"{bytes_words(size)} ({size:,} bytes)"


def _some(names: Any) -> str:
    shown = ", ".join(names[:NAMED_MAX])
    return f"{shown} and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else shown


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


def _first(counters: Mapping[str, int]) -> list[tuple[str, int]]:
    """The most telling counters that are not 0."""

    def place(item: tuple[str, int]) -> tuple[int, str]:
        name = item[0]
        begins = [n for n, start in enumerate(COUNTERS_FIRST) if name.startswith(start)]
        return (begins[0] if begins else len(COUNTERS_FIRST), name)

    told = [(name, count) for name, count in counters.items() if count]
    return sorted(told, key=place)[:NAMED_MAX]
