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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from magic_committer._modes import mode_of
from magic_committer.errors import OptionError
from magic_committer.options import SECRET_FIELDS, Options, S3Options
from magic_committer.spark.formats import OPTIONS

T = TypeVar("T", Options, S3Options)

S3_PREFIX = "s3."
"""What begins the options that are fields of `S3Options`: ``s3.endpoint_url``."""
OPTIONS_PREFIX = "options."
"""What begins the options that are fields of `Options`: ``options.block_bytes``."""
FORMAT_OPTIONS: Mapping[str, Sequence[str]] = {
    "parquet": (
        "compression",
        "parquet.block.size",
        "parquet.page.size",
        "parquet.dictionary.page.size",
        "parquet.enable.dictionary",
    ),
    **OPTIONS,
}
"""The options of each format. Of a format that is not named here: ``compression``."""
OF_STREAMS = ("checkpointlocation",)
"""What Spark itself adds to the options of a stream."""
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
        mark_success, committer: as for `magic_committer.start`.
        s3: the connection to the store. options: sizes and numbers.
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
    given: Mapping[str, str],
    overwrite: bool,
    *,
    streams: bool = False,
) -> SourceOptions:
    """Read the options of a write.

    Args:
        given: the options as Spark passes them, with keys in any case.
        overwrite: whether Spark's save mode is "overwrite".
        streams: the write is a stream's.

    Raises:
        OptionError: the path is missing, an option is unknown, is given twice, or has a value that
            cannot be used. Nothing was started.
    """
    own = {"path", "fileformat", "ifexists", *_OWN, *(OF_STREAMS if streams else ())}
    file_format = next((given[key] for key in given if _plain(key) == "fileformat"), "parquet")
    of_format = FORMAT_OPTIONS.get(file_format.lower(), ("compression",))
    format_names = {_plain(name): name for name in of_format}
    values: dict[str, str] = {}
    of_the_format: dict[str, str] = {}
    s3: dict[str, str] = {}
    options: dict[str, str] = {}
    for key, value in given.items():
        name = _plain(key)
        if key.lower().startswith(S3_PREFIX):
            _put(s3, key, _plain(key[len(S3_PREFIX) :]), value)
        elif key.lower().startswith(OPTIONS_PREFIX):
            _put(options, key, _plain(key[len(OPTIONS_PREFIX) :]), value)
        elif name in own:
            _put(values, key, name, value)
        elif name in format_names:
            _put(of_the_format, key, format_names[name], value)
        else:
            raise _unknown(key, of_format)
    told = {_OWN[name].name: _OWN[name].read(name, text) for name, text in values.items()
            if name in _OWN}  # fmt: skip
    return SourceOptions(
        path=_path(values.get("path", ""), streams),
        file_format=file_format,
        mode=_mode(values.get("ifexists"), overwrite, streams),
        s3=_fields(S3Options, S3_PREFIX, s3),
        options=_fields(Options, OPTIONS_PREFIX, options),
        checkpoint=values.get("checkpointlocation", ""),
        of_format=of_the_format,
        **told,
    )


def _plain(key: str) -> str:
    """A key without what does not count: ``partitionBy`` and ``partition_by`` are the same."""
    return key.lower().replace("_", "")


def _put(values: dict[str, str], key: str, name: str, value: str) -> None:
    if name in values:
        raise OptionError(f"option {key!r} is given twice, in two spellings", hint="Leave one out")
    values[name] = value


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


def _unknown(key: str, of_format: Sequence[str]) -> OptionError:
    ours = ["path", "fileFormat", "if_exists", *(own.name for own in _OWN.values())]
    known = [*ours, *of_format]
    word = _plain(key)
    if word in {_plain(name) for name in SECRET_FIELDS}:
        return _secret(key)
    if word == "sortby":
        return OptionError(
            'format("magic") cannot sort', hint="Sort before: df.sortWithinPartitions(...)"
        )
    near = difflib.get_close_matches(word, [_plain(name) for name in known], n=1, cutoff=0.75)
    meant = next((name for name in known if near and _plain(name) == near[0]), "")
    return OptionError(
        f'format("magic") does not know the option {key!r}',
        hint=(f"Did you mean {meant!r}? " if meant else "")
        + f"There are {', '.join(known)}; s3.<field of S3Options>, such as s3.endpoint_url;"
        " options.<field of Options>, such as options.block_bytes",
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


@dataclass(frozen=True)
class _Own:
    name: str
    read: Callable[[str, str], Any]


_OWN: Mapping[str, _Own] = {
    _plain(own.name): own
    for own in (
        _Own("partition_by", _columns),
        _Own("time_zone", lambda _, text: text),
        _Own("max_records_per_file", _rows),
        _Own("mark_success", _flag),
        _Own("committer", lambda _, text: text),
    )
}
"""The options that are fields of `SourceOptions` as they are: by their plain names."""

_READERS: Mapping[Any, Callable[[str, str], Any]] = {
    bool: _flag,
    int: _number,
    float: _seconds,
}


def _fields(kind: type[T], prefix: str, given: Mapping[str, str]) -> T:
    """Build `S3Options` or `Options` of text, by the types of the fields."""
    hints = get_type_hints(kind)
    names = {_plain(one.name): one.name for one in fields(kind)}
    built: dict[str, Any] = {}
    for plain, text in given.items():
        name = names.get(plain, "")
        if name in SECRET_FIELDS or (name == "endpoint_url" and "@" in text):
            raise _secret(prefix + name)
        if not name:
            known = ", ".join(prefix + one for one in names.values() if one not in SECRET_FIELDS)
            raise OptionError(
                f'format("magic") does not know the option {prefix + plain!r}',
                hint=f"There are {known}",
            )
        built[name] = _reader(name, hints[name])(prefix + name, text)
    return kind(**built)


def _reader(name: str, hint: Any) -> Callable[[str, str], Any]:
    if name == "tags":
        return _tags
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return next((_READERS[kind] for kind in kinds if kind in _READERS), lambda _, text: text)
