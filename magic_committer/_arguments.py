"""What callers pass, checked before anything is done with it: accepted, or refused as a
`WrongType`.

A plain mistake (``s3={}``, one result instead of a list, a `Path` for a URL) costs no request and
changes nothing. The message shows the value, the hint says what to pass. A value with one clear
meaning is accepted: ``expect=[1]`` names task ``"1"``, as ``job.task(1)`` does. Values of ``s3``
are never shown: they may be secrets. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import SupportsIndex, TypeVar

from magic_committer.errors import OptionError, WrongType
from magic_committer.options import Options, S3Options, S3Place
from magic_committer.protocol.ledger import StreamBatch, hash_of
from magic_committer.protocol.record import TaskCommit
from magic_committer.stores.base import Attributes

T = TypeVar("T")

SHOWN_CHARS_MAX = 80
"""How many characters of a wrong value a message shows."""


def _given(value: object, kind: type[T], example: str) -> T:
    """A value of this library that a caller passed; None means its defaults."""
    if value is None:
        return kind()
    if isinstance(value, kind):
        return value
    name = "s3" if kind is S3Options else kind.__name__.lower()
    if isinstance(value, Options | S3Options):
        other = "s3" if isinstance(value, S3Options) else "options"
        hint = f"That belongs into {other}=; here pass {name}=magic_committer."
    elif isinstance(value, Mapping) and value:
        example = ", ".join(f"{key}=…" for key in value)  # names only: values may be secrets
        hint = f"Write {name}=magic_committer."
    else:
        hint = f"Leave it out, or write {name}=magic_committer."
    raise WrongType(
        f"{name} takes {__package__}.{kind.__name__}, not {_kind(value)}",
        hint=f"{hint}{kind.__name__}({example})",
    )


def options_of(options: Options | None) -> Options:
    """The options to work with."""
    return _given(options, Options, "block_bytes=16 * 1024**2")


def attributes_of(attributes: Attributes | None) -> Attributes:
    """The attributes of a new object."""
    return _given(attributes, Attributes, "content_type='text/csv'")


def s3_of(s3: S3Options | None, place: S3Place | None = None) -> S3Options:
    """The connection to the store; None means: as the environment says. ``place``: the caller's
    other keywords, which Python has not checked."""
    for name in sorted(place or ()):
        if name not in S3Place.__annotations__:
            hint = "Check its spelling, here and in the reference"
            if name in S3Options.__dataclass_fields__:
                hint = f"Write s3=magic_committer.S3Options({name}=…)"
            raise WrongType(f"there is no argument {name!r}", hint=hint)
        if s3 is not None:
            raise OptionError(
                f"s3= and {name}= are given both",
                hint=f"Write s3=magic_committer.S3Options({name}=…, …), with all that s3 has",
            )
    if s3 is None and place:
        return S3Options(**place)
    return _given(s3, S3Options, "endpoint_url='https://…'")


def task_id_of(task: str | int) -> str:
    """The id of a task, given as text or as a number."""
    if isinstance(task, str):
        return task
    if isinstance(task, SupportsIndex) and not isinstance(task, bool):
        return str(task.__index__())
    raise WrongType(
        f"a task's id is text or a whole number, not {shown(task)}", hint="Write job.task('7')"
    )


def name_of(what: str, value: str | None) -> str | None:
    """An id or a name; None if the caller left it out."""
    if value is None or isinstance(value, str):
        return value
    raise WrongType(f"{what} is text, not {shown(value)}", hint=f"Pass {what}={str(value)!r}")


def expected_of(expect: int | Iterable[str | int] | None) -> int | frozenset[str] | None:
    """The number of tasks that there must be, or their ids; None if that does not matter. Raises
    WrongType: text, which may mean a number or an id; or neither a number nor ids. Raises
    OptionError: a number below 0."""
    if expect is None:
        return None
    if isinstance(expect, bool | str | bytes):
        hint = "Pass how many there must be, expect=1, or which: expect=['7']"
        if not isinstance(expect, bool):
            text = expect.decode(errors="replace") if isinstance(expect, bytes) else expect
            hint = f"Pass expect=[{text!r}] for one task of that id"
            if text.isdecimal():
                hint += f", or expect={int(text)} for so many tasks"
        told = f"expect={expect!r} is neither a number of tasks nor a list of their ids"
        raise WrongType(told, hint=hint)
    if isinstance(expect, SupportsIndex):
        number = expect.__index__()
        if number < 0:
            raise OptionError(f"expect={number}: there are 0 tasks or more")
        return number
    if isinstance(expect, Iterable):
        return frozenset(map(task_id_of, expect))
    raise WrongType(
        f"expect is a number of tasks or a list of their ids, not {shown(expect)}",
        hint="Pass expect=len(results), or expect=['7', '8']",
    )


def results_of(results: Iterable[T] | None) -> Iterable[T] | None:
    """The results to accept, as an iterable; None if none were given."""
    if results is None:
        return None
    if isinstance(results, TaskCommit):
        raise WrongType(
            f"commit takes a list of results, not one TaskCommit (of task {results.task!r})",
            hint="Pass [result] if the job has this one task only; else gather all of them, and"
            " commit once",
        )
    if isinstance(results, str | bytes | Mapping) or not isinstance(results, Iterable):
        raise WrongType(
            f"commit takes a list of results, not {shown(results)}", hint="Pass [task.result]"
        )
    return results


def batch_of(batch: StreamBatch | None) -> StreamBatch | None:
    """The micro-batch to commit; None if the job belongs to no streaming query."""
    if isinstance(batch, StreamBatch | None):
        return batch
    number = batch if isinstance(batch, int) and not isinstance(batch, bool) else 7
    raise WrongType(
        f"batch takes magic_committer.StreamBatch, not {shown(batch)}",
        hint=f"Pass batch=magic_committer.StreamBatch(query, {number}), with the id of the query",
    )


def checkpoint_of(checkpoint: str | None) -> str:
    """What a record holds of a streaming query's checkpoint; "" if the caller gave none."""
    if checkpoint is None:
        return ""
    if isinstance(checkpoint, str) and checkpoint:
        return hash_of(checkpoint)
    raise WrongType(
        f"checkpoint is the text that names a query's checkpoint, not {shown(checkpoint)}",
        hint="Pass checkpoint='s3://bucket/checkpoint', the same in every run of the query",
    )


def result_of(result: object) -> TaskCommit:
    """The result of a task, also as its ``to_dict`` gave it."""
    if isinstance(result, TaskCommit):
        return result
    if isinstance(result, Mapping):
        return TaskCommit.from_dict(result)
    raise WrongType(
        f"commit takes TaskCommits, not {shown(result)}", hint="Pass task.result for each task"
    )


def shown(value: object) -> str:
    """Show a wrong value in a message: its type, and as much of it as fits."""
    if isinstance(value, Options | S3Options):
        return _kind(value)
    text = repr(value)
    cut = text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}…"
    return f"{type(value).__name__}: {cut}"


def _kind(value: object) -> str:
    """The type of a value that is not shown, with its article."""
    if isinstance(value, Mapping):
        return f"a {type(value).__name__}" if value else f"an empty {type(value).__name__}"
    return f"{type(value).__module__.partition('.')[0]}.{type(value).__name__}"
