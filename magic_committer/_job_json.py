"""A job as JSON, for schedulers that pass JSON between processes (Airflow's XCom).

It holds what a pickle holds: names, terms, options, the connection to the store. It never holds a
secret: `S3Options.travelling` leaves secrets out. The reader is strict: another version or a person
may have written the text. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Literal

from magic_committer._hints import SAME_VERSION
from magic_committer.errors import FormatError, PathError
from magic_committer.hadoop.paths import Destination, check_id, is_s3_url
from magic_committer.options import SECRET_FIELDS, Options, S3Options
from magic_committer.protocol.record import StartedJob, State, Terms
from magic_committer.protocol.strict import check_version, given_dict, plain, read_fields

VERSION = 1
"""The version of this form. A reader knows exactly this one."""
SOURCE = "Job.from_dict"
"""The place of a mistake, as errors name it."""

_UUID = re.compile(r"[0-9a-f]{32}")
_STARTED = tuple(one.name for one in fields(StartedJob) if one.name != "undisturbed")
"""What travels of a `StartedJob`: another process did not write the record."""


@dataclass(frozen=True, slots=True)
class TravellingJob:
    """The fields of a job's handle. An option that is missing has its default: the version that
    wrote the text did not know it. Terms are those of the record, and none is guessed."""

    id: str
    uuid: str
    dest: str
    terms: Terms
    given_id: bool
    fence_etag: str
    adopted: str
    said_mode: str
    state: State
    outcome: Literal["", "committed", "aborted", "reverted"]
    options: Options
    s3: S3Options

    @property
    def started(self) -> StartedJob:
        """The job, for a process that has not started it."""
        known = {name: getattr(self, name) for name in _STARTED}
        return StartedJob(**known, undisturbed=False)


def to_values(
    started: StartedJob, options: Options, s3: S3Options, state: State, outcome: str
) -> dict[str, Any]:
    """Give plain JSON values."""
    values = plain(started)
    return {
        "version": VERSION,
        **{name: values[name] for name in _STARTED},
        "state": state.value,
        "outcome": outcome,
        "options": plain(options),
        "s3": _s3_values(s3),
    }


def from_values(values: object) -> TravellingJob:
    """Read what `to_values` gave. Raises WrongType: the value is not a dict. Raises FormatError: a
    field is missing, unknown, of the wrong type, or impossible."""
    document = given_dict(values, "Job")
    check_version(document, SOURCE, VERSION, SAME_VERSION)
    for name in document["s3"] if isinstance(document.get("s3"), dict) else ():
        if name in SECRET_FIELDS:
            told = "is unknown and is never part of this: a secret does not travel"
            raise FormatError(SOURCE, f"s3.{name}", told)
    job = read_fields(TravellingJob, document, SOURCE, optional=(Options, S3Options))
    _check(job.started)
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


def _s3_values(s3: S3Options) -> dict[str, Any]:
    """All fields but the secrets and the defaults: the reader has its own defaults."""
    values = s3.travelling()
    default = S3Options()
    told = {name: value for name, value in values.items() if value != getattr(default, name)}
    if "tags" in told:
        told["tags"] = [list(pair) for pair in told["tags"]]
    return told
