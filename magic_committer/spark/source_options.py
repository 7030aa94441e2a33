"""The options of ``format("magic")``: text that a user of Spark wrote, as values of this library.

Spark gives a data source two things: a dict of text, with its keys in lower case, and whether the
save mode was "overwrite". So everything that `write_dataframe` takes as an argument is an option
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
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from magic_committer._modes import mode_of
from magic_committer.errors import OptionError
from magic_committer.options import SECRET_FIELDS, Options, S3Options
from magic_committer.spark.formats import OPTIONS, PARQUET_OPTIONS

PREFIXED: Mapping[str, type[Any]] = {"s3.": S3Options, "options.": Options}
"""What begins the options that are fields of a class: ``s3.endpoint_url``."""
OWN = ("partition_by", "time_zone", "max_records_per_file", "mark_success", "committer")
"""The options that are fields of `SourceOptions` as they are."""
OTHER = ("path", "fileFormat", "if_exists")
OF_STREAMS = ("checkpointlocation",)
"""What Spark itself adds to the options of a stream."""
FORMAT_OPTIONS: Mapping[str, Sequence[str]] = {
    "parquet": ("compression", *sorted({*PARQUET_OPTIONS} - {"parquet.compression"})),
    **OPTIONS,
}
"""The options of each format. Of a format that is not named here: ``compression``."""
REPLACES = ("replace", "replace_partitions")


@dataclass(frozen=True)
class SourceOptions:
    """What a user of ``format("magic")`` asked for.

    Attributes:
        path: the destination, ``s3://bucket/prefix``.
        file_format: the format of the files, as `write_dataframe` has it.
        mode: what is done with data that is there, in Spark's words or the library's.
        partition_by: columns that become directories.
        max_records_per_file: rows of a file at most; None: any number.
        time_zone: in which the text of a partition's timestamp is; "" if it is not said.
        mark_success, committer, s3, options: as for `magic_committer.start`.
        checkpoint: a stream's checkpoint location; "" for a batch.
        of_format: what is left, for the format: ``compression``.
    """

    path: str
    file_format: str = "parquet"
    mode: str = "append"
    partition_by: tuple[str, ...] = ()
    max_records_per_file: int | None = None
    time_zone: str = ""
    mark_success: bool = True
    committer: str | None = None
    s3: S3Options = field(default_factory=S3Options)
    options: Options = field(default_factory=Options)
    checkpoint: str = ""
    of_format: Mapping[str, str] = field(default_factory=dict)


def read_options(
    given: Mapping[str, str], overwrite: bool, *, streams: bool = False
) -> SourceOptions:
    """Read the options of a write, as Spark passes them, with keys in any case.

    Raises:
        OptionError: the path is missing, an option is unknown, is given twice, or has a value that
            cannot be used. Nothing was started.
    """
    said: dict[str, dict[str, str]] = {"": {}, **{prefix: {} for prefix in PREFIXED}}
    spelt: dict[str, str] = {}
    for key, value in given.items():
        prefix = next((one for one in PREFIXED if key.lower().startswith(one)), "")
        name = _plain(key[len(prefix) :])
        if name in said[prefix]:
            raise OptionError(
                f"option {key!r} is given twice, in two spellings", hint="Leave one out"
            )
        said[prefix][name] = value
        spelt[prefix + name] = key
    own = said.pop("")
    file_format = own.pop("fileformat", "parquet")
    of_format = FORMAT_OPTIONS.get(file_format.lower(), ("compression",))
    path = own.pop("path", "")
    checkpoint = own.pop(OF_STREAMS[0], "") if streams else ""
    if_exists = own.pop("ifexists", None)
    of_the_format = {name: own.pop(_plain(name)) for name in of_format if _plain(name) in own}
    read = _read(SourceOptions, "", OWN, own, spelt, of_format)
    for prefix, kind in PREFIXED.items():
        names = [one.name for one in fields(kind)]
        read[prefix[:-1]] = kind(**_read(kind, prefix, names, said[prefix], spelt))
    return SourceOptions(
        path=_path(path, streams),
        file_format=file_format,
        mode=_mode(if_exists, overwrite, streams),
        checkpoint=checkpoint,
        of_format=of_the_format,
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
    mode = mode_of(if_exists, ignore=True)
    if (mode in REPLACES) == overwrite:
        return if_exists
    said, other = ("overwrite", "append") if overwrite else ("append", "overwrite")
    raise OptionError(
        f'.mode("{said}") and if_exists={if_exists!r} contradict each other: only overwriting'
        " replaces what is there",
        hint=f'Write .mode("{other}"), or leave if_exists out',
    )


def _read(
    kind: type[Any],
    prefix: str,
    names: Collection[str],
    given: Mapping[str, str],
    spelt: Mapping[str, str],
    of_format: Sequence[str] = (),
) -> dict[str, Any]:
    """Read text as values of some fields of a class, by their types."""
    hints = get_type_hints(kind)
    known = {_plain(name): name for name in names}
    read = {}
    for plain, text in given.items():
        name = known.get(plain, "")
        if name in SECRET_FIELDS or (name == "endpoint_url" and "@" in text):
            raise _secret(spelt[prefix + plain])
        if not name:
            raise _unknown(spelt[prefix + plain], prefix, plain, names, of_format)
        kinds = get_args(hints[name]) if get_origin(hints[name]) in (Union, UnionType) else ()
        reader = _READERS.get(name) or next(
            (_READERS[one] for one in (*kinds, hints[name]) if one in _READERS), None
        )
        read[name] = text if reader is None else reader(prefix + name, text)
    return read


def _unknown(
    key: str, prefix: str, plain: str, names: Collection[str], of_format: Sequence[str]
) -> OptionError:
    told = f'format("magic") does not know the option {key!r}'
    if prefix:
        known = ", ".join(prefix + one for one in names if one not in SECRET_FIELDS)
        return OptionError(told, hint=f"There are {known}")
    if plain in map(_plain, SECRET_FIELDS):
        return _secret(key)
    if plain == "sortby":
        return OptionError(
            'format("magic") cannot sort', hint="Sort before: df.sortWithinPartitions(...)"
        )
    known_names = {_plain(name): name for name in (*OTHER, *names, *of_format)}
    near = difflib.get_close_matches(plain, known_names, n=1, cutoff=0.75)
    return OptionError(
        told,
        hint=(f"Did you mean {known_names[near[0]]!r}? " if near else "")
        + f"There are {', '.join(known_names.values())}; s3.<field of S3Options>, such as"
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


def _columns(name: str, text: str) -> tuple[str, ...]:
    """``"a, b"``; as JSON for names that hold a comma: ``'["a,b"]'``."""
    if text.lstrip().startswith("["):
        read = _json(name, text, '["a", "b"]')
        if isinstance(read, list) and all(isinstance(one, str) for one in read):
            return tuple(read)
        raise _bad(name, text, 'a list of names; write a,b or ["a", "b"]')
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        raise _bad(name, text, "names of columns; write a,b")
    return names


def _json(name: str, text: str, example: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise _bad(name, text, f"JSON; write {example}") from None


def _flag(name: str, text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise _bad(name, text, "true or false")
    return word == "true"


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise _bad(name, text, "a whole number") from None


def _seconds(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise _bad(name, text, "a number") from None


def _tags(name: str, text: str) -> tuple[tuple[str, str], ...]:
    read = _json(name, text, '{"team": "data"}')
    if isinstance(read, dict) and all(isinstance(one, str) for one in read.values()):
        return tuple(read.items())
    raise _bad(name, text, 'names and texts; write {"team": "data"}')


def _rows(name: str, text: str) -> int | None:
    """As Spark's option: 0 and less means any number."""
    number = _number(name, text)
    return number if number > 0 else None


def _bad(name: str, text: str, wanted: str) -> OptionError:
    return OptionError(f"option {name!r}: {text!r:.80} is not {wanted}")


_READERS: Mapping[Any, Callable[[str, str], Any]] = {
    bool: _flag,
    int: _number,
    float: _seconds,
    "partition_by": _columns,
    "max_records_per_file": _rows,
    "tags": _tags,
}
"""What reads a field, by its name or its type. Other fields are text."""
