"""A job as JSON, for schedulers that pass JSON between processes (Airflow's XCom).

It holds what a pickle holds: names, terms, options, the connection to the store. It never holds a
secret: `S3Options.travelling` leaves secrets out. The reader is strict: another version or a person
may have written the text. Pure.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from magic_committer._hints import SAME_VERSION
from magic_committer.errors import FormatError, OptionError, PathError
from magic_committer.hadoop.paths import Destination, check_id, is_s3_url
from magic_committer.options import SECRET_FIELDS, Options, S3Options
from magic_committer.protocol.record import ENDS, MAGIC, StartedJob, State, Terms
from magic_committer.protocol.strict import Reader, given_dict

VERSION = 1
"""The version of this form. A reader knows exactly this one."""
SOURCE = "Job.from_dict"
"""The place of a mistake, as errors name it."""

T = TypeVar("T", Options, S3Options, Terms)

_UUID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class TravellingJob:
    """The fields of a job's handle."""

    started: StartedJob
    options: Options
    s3: S3Options
    state: State
    outcome: str


def to_values(job: TravellingJob) -> dict[str, Any]:
    """Give plain JSON values."""
    started = job.started
    return {
        "version": VERSION,
        "id": started.id,
        "uuid": started.uuid,
        "dest": started.dest,
        "terms": _terms(started.terms),
        "given_id": started.given_id,
        "fence_etag": started.fence_etag,
        "adopted": started.adopted,
        "said_mode": started.said_mode,
        "state": job.state.value,
        "outcome": job.outcome,
        "options": _values(job.options),
        "s3": _s3_values(job.s3),
    }


def from_values(values: object) -> TravellingJob:
    """Read what `to_values` gave. Raises WrongType: the value is not a dict. Raises FormatError: a
    field is missing, unknown, of the wrong type, or impossible."""
    read = Reader(given_dict(values, "Job"), SOURCE)
    version = read.take("version", int)
    if version != VERSION:
        raise FormatError(
            SOURCE, "version", f"is {version}, this library knows {VERSION}",
            hint=SAME_VERSION,
        )  # fmt: skip
    started = StartedJob(
        id=read.take("id", str),
        uuid=read.take("uuid", str),
        dest=read.take("dest", str),
        terms=_read(Terms, read.take("terms", dict), "terms"),
        given_id=read.take("given_id", bool),
        fence_etag=read.take("fence_etag", str),
        undisturbed=False,  # another process: it did not write the record
        adopted=read.take("adopted", str),
        said_mode=read.take("said_mode", str),
    )
    job = TravellingJob(
        started=started,
        options=_read(Options, read.take("options", dict), "options"),
        s3=_read(S3Options, read.take("s3", dict), "s3"),
        state=read.choice("state", State),
        outcome=read.one_of("outcome", ("", *ENDS)),
    )
    read.nothing_left()
    _check(started)
    return job


def _check(started: StartedJob) -> None:
    """Check what the types do not say."""
    if not _UUID.fullmatch(started.uuid):
        raise FormatError(SOURCE, "uuid", f"is {started.uuid!r}, not 32 hexadecimal digits")
    checks: list[tuple[str, Callable[[], object]]] = [
        ("id", lambda: check_id("job id", started.id)),
        ("dest", lambda: Destination.parse(started.dest)),
        ("adopted", lambda: started.paths),
    ]
    if started.adopted and not is_s3_url(started.dest):
        raise FormatError(SOURCE, "adopted", f"is {started.adopted!r}: the job is not on S3")
    for name, check in checks:
        try:
            check()
        except PathError as error:
            raise FormatError(SOURCE, name, error.message, hint=error.hint) from error
    if Destination.parse(started.dest).url != started.dest:
        raise FormatError(SOURCE, "dest", f"is {started.dest!r}, not as a job writes it")


def _terms(terms: Terms) -> dict[str, Any]:
    """The terms. As in a record, a committer that is not named is magic."""
    values = _values(terms)
    if terms.committer == MAGIC:
        del values["committer"]
    return values


def _values(value: Options | Terms) -> dict[str, Any]:
    return {f.name: getattr(value, f.name) for f in fields(value)}


def _s3_values(s3: S3Options) -> dict[str, Any]:
    """All fields but the secrets and the defaults: the reader has its own defaults."""
    values = s3.travelling()
    default = S3Options()
    told = {name: value for name, value in values.items() if value != getattr(default, name)}
    if "tags" in told:
        told["tags"] = [list(pair) for pair in told["tags"]]
    return told


def _read(kind: type[T], values: Mapping[str, Any], where: str) -> T:
    """Read one of the dataclasses. Each field must have the type of its annotation. An option that
    is missing has its default: the version that wrote the text did not know it. Terms are those of
    the record, and none is guessed."""
    hints = get_type_hints(kind)
    built: dict[str, Any] = {}
    for name, value in values.items():
        field = f"{where}.{name}"
        if name not in hints or name in SECRET_FIELDS:
            secret = " and is never part of this: a secret does not travel"
            raise FormatError(
                SOURCE, field, "is unknown" + (secret if name in SECRET_FIELDS else ""),
                hint=SAME_VERSION,
            )  # fmt: skip
        if name == "tags":
            value = _tags(value, field)
        elif not _fits(value, hints[name]):
            raise FormatError(SOURCE, field, f"has the wrong type: {type(value).__name__}")
        built[name] = value
    if kind is Terms:
        for name in hints:
            if name not in built and name != "committer":  # absent: magic
                raise FormatError(SOURCE, f"{where}.{name}", "is missing")
    try:
        return kind(**built)
    except OptionError as error:
        raise FormatError(SOURCE, where, error.message, hint=error.hint) from error


def _fits(value: object, hint: object) -> bool:
    """Whether a JSON value has an annotated type: a plain type, a choice of texts, or a union."""
    if get_origin(hint) in (Union, UnionType):
        return any(_fits(value, one) for one in get_args(hint))
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, typing.cast(type, hint))


def _tags(value: object, field: str) -> tuple[tuple[str, str], ...]:
    pairs: list[Any] = list(value) if isinstance(value, list | tuple) else [value]
    for pair in pairs:
        right = isinstance(pair, list | tuple) and len(pair) == 2
        if not right or not all(isinstance(text, str) for text in pair):
            raise FormatError(SOURCE, field, "is no list of pairs of texts")
    return tuple((pair[0], pair[1]) for pair in pairs)
