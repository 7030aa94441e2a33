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
from magic_committer.protocol.record import StartedJob, State
from magic_committer.protocol.strict import check_version, given_dict, plain, read_fields

VERSION = 1
"""The version of this form. A reader knows exactly this one."""
SOURCE = "Job.from_dict"
"""The place of a mistake, as errors name it."""

_UUID = re.compile(r"[0-9a-f]{32}")
_STARTED = tuple(one.name for one in fields(StartedJob))
_HERE_ONLY = {"undisturbed": False}
"""What does not travel of a `StartedJob`: another process did not write the record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TravellingJob(StartedJob):
    """The fields of a job's handle. An option that is missing has its default: the version that
    wrote the text did not know it. Terms are those of the record, and none is guessed."""

    state: State
    outcome: Literal["", "committed", "aborted", "reverted"]
    options: Options
    s3: S3Options

    @property
    def started(self) -> StartedJob:
        """The job, for a process that has not started it."""
        return StartedJob(*(getattr(self, name) for name in _STARTED))


def to_values(
    started: StartedJob, options: Options, s3: S3Options, state: State, outcome: str
) -> dict[str, Any]:
    """Give plain JSON values; of ``s3`` without the secrets and the defaults, which the reader has
    of its own."""
    default = S3Options()
    given = {
        name: list(map(list, value)) if name == "tags" else value
        for name, value in s3.travelling().items()
        if value != getattr(default, name)
    }
    values = {"version": VERSION, **plain(started), "state": state.value, "outcome": outcome}
    for name in _HERE_ONLY:
        del values[name]
    return {**values, "options": plain(options), "s3": given}


def from_values(values: object) -> TravellingJob:
    """Read what `to_values` gave. Raises WrongType: the value is not a dict. Raises FormatError: a
    field is missing, unknown, of the wrong type, or impossible."""
    document = given_dict(values, "Job")
    check_version(document, SOURCE, VERSION, SAME_VERSION)
    for name in document["s3"] if isinstance(document.get("s3"), dict) else ():
        if name in SECRET_FIELDS:
            told = "is unknown and is never part of this: a secret does not travel"
            raise FormatError(SOURCE, f"s3.{name}", told)
    document |= _HERE_ONLY
    job = read_fields(TravellingJob, document, SOURCE, optional=(Options, S3Options))
    if not _UUID.fullmatch(job.uuid):
        raise FormatError(SOURCE, "uuid", f"is {job.uuid!r}, not 32 hexadecimal digits")
    if job.adopted and not is_s3_url(job.dest):
        raise FormatError(SOURCE, "adopted", f"is {job.adopted!r}: the job is not on S3")
    checks: list[tuple[str, Callable[[], object]]] = [
        ("id", lambda: check_id("job id", job.id)),
        ("dest", lambda: Destination.parse(job.dest)),
        ("adopted", lambda: job.paths),
    ]
    for name, check in checks:
        try:
            check()
        except PathError as error:
            raise FormatError(SOURCE, name, error.message, hint=error.hint) from error
    if Destination.parse(job.dest).url != job.dest:
        raise FormatError(SOURCE, "dest", f"is {job.dest!r}, not as a job writes it")
    return job
