"""The options of ``format("magic")``: text that a user of Spark wrote, as values of this library.

Spark gives a data source two things: a dict of text, with its keys in lower case, and whether the
save mode was "overwrite". So everything that `write_dataframe` accepts as an argument is an option
here. Invariants:

* An option that nobody knows is an error that lists the known ones: a misspelt ``partition_by``
  would otherwise write a table without partitions.
* Upper and lower case and underscores do not count: ``partitionBy``, ``partition_by``.
* A secret is refused: Spark shows options in its plans, in its UI and in its event log.

Pure.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast, get_args, get_type_hints

from magic_committer._modes import mode_of
from magic_committer._runtime import no_progress
from magic_committer.errors import OptionError
from magic_committer.options import SECRET_FIELDS, Options, S3Options
from magic_committer.spark.driver import Order, SaveMode
from magic_committer.spark.formats import OPTIONS, PARQUET_OPTIONS

FORMAT_OPTIONS: Mapping[str, Sequence[str]] = {
    "parquet": ("compression", *sorted({*PARQUET_OPTIONS} - {"parquet.compression"})),
    **OPTIONS,
}
"""The options of each format. Of a format that is not named here: ``compression``."""
CHECKPOINT = "checkpointLocation"
"""What Spark itself adds to the options of a stream."""
REPLACES = ("replace", "replace_partitions")


@dataclass(frozen=True)
class SourceOptions(Order):
    """What a user of ``format("magic")`` asked for. ``time_zone`` is that of the text of a
    partition's timestamp, "" if it is not said; ``of_format`` is what is left, for the format."""

    file_format: str = "parquet"
    partition_by: tuple[str, ...] = ()
    max_records_per_file: int | None = None
    time_zone: str = ""
    of_format: Mapping[str, str] | None = None


def read_options(
    given: Mapping[str, str], overwrite: bool, *, streams: bool = False
) -> SourceOptions:
    """Read the options of a write, as Spark passes them, with keys in any case.

    Raises:
        OptionError: the path is missing, an option is unknown, is given twice, or has a value that
            cannot be used. Nothing was started.
    """
    named = {_plain(key): value for key, value in given.items()}.get("fileformat", "parquet")
    of_format = FORMAT_OPTIONS.get(named.lower(), ("compression",))
    readers = {**_OWN, **dict.fromkeys(of_format, _text)}
    if streams:
        readers[CHECKPOINT] = _text
    for kind in (S3Options, Options):
        prefix = "s3." if kind is S3Options else "options."
        readers |= {
            prefix + name: _reader_of(name, of) for name, of in get_type_hints(kind).items()
        }
    known = {_plain(name): name for name in readers}
    read: dict[str, Any] = {}
    for key, text in given.items():
        name = known.get(_plain(key), "")
        field = name.rpartition(".")[2]
        if not name:
            raise _unknown(key, list(readers))
        if field in SECRET_FIELDS or (field == "endpoint_url" and "@" in text):
            raise _secret(key)
        if name in read:
            raise OptionError(
                f"option {key!r} is given twice, in two spellings", hint="Leave one out"
            )
        read[name] = readers[name](name, text)

    def fields_of(prefix: str) -> dict[str, Any]:
        names = [name for name in read if name.startswith(prefix)]
        return {name.removeprefix(prefix): read.pop(name) for name in names}

    return SourceOptions(
        dest=_path(read.pop("path", ""), streams),
        mode=cast(SaveMode, _mode(read.pop("if_exists", None), overwrite, streams)),
        mark_success=read.pop("mark_success", True),
        s3=S3Options(**fields_of("s3.")),
        options=Options(**fields_of("options.")),
        progress=no_progress,
        checkpoint=read.pop(CHECKPOINT, None) or None,
        of_format={name: read.pop(name) for name in of_format if name in read},
        file_format=read.pop("fileFormat", "parquet"),
        **read,
    )


def _plain(key: str) -> str:
    """A key without what does not count: ``partitionBy`` and ``partition_by`` are the same, and so
    are ``fileFormat`` and ``format``."""
    plain = key.lower().replace("_", "")
    return "fileformat" if plain == "format" else plain


def _path(path: str, streams: bool) -> str:
    if path:
        return path
    raise OptionError(
        'format("magic") has no path: it does not know where to write',
        hint="Write .start('s3://bucket/table')"
        if streams
        else "Write .save('s3://bucket/table'); in SQL: INSERT INTO t WITH"
        " (path='s3://bucket/table') SELECT ... (Spark passes no options of CREATE TABLE on)",
    )


def _mode(if_exists: str | None, overwrite: bool, streams: bool) -> str:
    """The mode, of Spark's save mode and of our option, which may say it more exactly."""
    if if_exists is None:
        return "overwrite" if overwrite else "append"
    if streams:
        raise OptionError(
            "if_exists is not for streams: each batch comes where the earlier ones are",
            hint='Leave it out: a stream appends; .outputMode("complete") replaces',
        )
    if (mode_of(if_exists, ignore=True) in REPLACES) == overwrite:
        return if_exists
    said, other = ("overwrite", "append") if overwrite else ("append", "overwrite")
    raise OptionError(
        f'.mode("{said}") and if_exists={if_exists!r} contradict each other: only overwriting'
        " replaces what is there",
        hint=f'Write .mode("{other}"), or leave if_exists out',
    )


def _unknown(key: str, names: Sequence[str]) -> OptionError:
    said = f'format("magic") does not know the option {key!r}'
    plain = _plain(key)
    for prefix in ("s3.", "options."):
        if plain.startswith(prefix):
            there = [name for name in names if name.startswith(prefix)]
            shown = [name for name in there if name.removeprefix(prefix) not in SECRET_FIELDS]
            return OptionError(said, hint=f"There are {', '.join(shown)}")
    if plain in map(_plain, SECRET_FIELDS):
        return _secret(key)
    if plain == "sortby":
        return OptionError(
            'format("magic") cannot sort', hint="Sort before: df.sortWithinPartitions(...)"
        )
    known = {_plain(name): name for name in names if not name.startswith(("s3.", "options."))}
    near = difflib.get_close_matches(plain, known, n=1, cutoff=0.75)
    return OptionError(
        said,
        hint=(f"Did you mean {known[near[0]]!r}? " if near else "")
        + f"There are {', '.join(known.values())}; s3.<field of S3Options>, such as"
        " s3.endpoint_url; options.<field of Options>, such as options.block_bytes",
    )


def _secret(key: str) -> OptionError:
    return OptionError(
        f"option {key!r} is a secret: Spark would show it in its plans and in its event log",
        hint="Leave it out: the environment (AWS_ACCESS_KEY_ID, AWS_PROFILE, ...) or an instance"
        " role supplies keys, on the driver's machine and on the executors;"
        " MAGIC_COMMITTER_SSE_CUSTOMER_KEY the key for SSE-C",
    )


# Values -------------------------------------------------------------------------------------------

Reader = Callable[[str, str], Any]
"""Reads the text of a named option."""


def _reader(read: Callable[[str], Any], wanted: str) -> Reader:
    def reading(name: str, text: str) -> Any:
        try:
            return read(text)
        except (ValueError, LookupError):
            raise OptionError(f"option {name!r}: {text!r:.80} is not {wanted}") from None

    return reading


def _columns(text: str) -> tuple[str, ...]:
    """``"a, b"``; as JSON for names that hold a comma: ``'["a,b"]'``."""
    is_json = text.lstrip().startswith("[")
    names = json.loads(text) if is_json else [part.strip() for part in text.split(",")]
    if not all(isinstance(one, str) and (one or is_json) for one in names):
        raise ValueError
    return tuple(names)


def _tags(text: str) -> tuple[tuple[str, str], ...]:
    read = json.loads(text)
    if not (isinstance(read, dict) and all(isinstance(one, str) for one in read.values())):
        raise ValueError
    return tuple(read.items())


def _rows(text: str) -> int | None:
    """As Spark's option: 0 and less means any number."""
    number = int(text)
    return number if number > 0 else None


def _text(name: str, text: str) -> str:
    return text


_flag = _reader(lambda text: {"true": True, "false": False}[text.strip().lower()], "true or false")
_READERS: Mapping[Any, Reader] = {
    bool: _flag,
    int: _reader(int, "a whole number"),
    float: _reader(float, "a number"),
    "tags": _reader(_tags, 'names and texts as JSON; write {"team": "data"}'),
}
"""What reads a field, by its name or its type. Other fields are text."""
_OWN: Mapping[str, Reader] = {
    "path": _text,
    "fileFormat": _text,
    "if_exists": _text,
    "partition_by": _reader(_columns, 'names of columns; write a,b or, as JSON, ["a", "b"]'),
    "time_zone": _text,
    "max_records_per_file": _reader(_rows, "a whole number"),
    "mark_success": _flag,
    "committer": _text,
}


def _reader_of(name: str, kind: Any) -> Reader:
    found = (_READERS[one] for one in (name, *get_args(kind), kind) if one in _READERS)
    return next(found, _text)
