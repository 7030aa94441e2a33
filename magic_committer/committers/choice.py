"""Which committer a new job gets. The first that says something wins:

1. the call: ``committer="directory"``;
2. the environment variable `VARIABLE`;
3. the nearest configuration file, from the working directory upwards: ``magic-committer.ini`` with
   a section ``[magic-committer]``, or ``pyproject.toml`` with a table ``[tool.magic-committer]``;
4. the scheme of the destination (`registry.OF_SCHEME`).

A variable or a file may say one name for all destinations, or one for each scheme. Schemes that it
does not name are chosen by rule 4::

    MAGIC_COMMITTER_COMMITTER=directory
    MAGIC_COMMITTER_COMMITTER=s3=partitioned

    [tool.magic-committer]                     # pyproject.toml
    committer = "directory"

    [tool.magic-committer.committer]           # or, by scheme
    s3 = "partitioned"

Only a job that starts is asked for: every other call finds the committer in the job's record. A
setting that cannot be understood is an error: a committer that is misspelt is no choice.
"""

from __future__ import annotations

import os
import tomllib
from configparser import ConfigParser
from configparser import Error as IniError
from functools import lru_cache
from pathlib import Path
from typing import Any

from magic_committer.committers.base import CommitterClass
from magic_committer.committers.registry import default_for, named, scheme_of
from magic_committer.errors import MagicError, OptionError

VARIABLE = "MAGIC_COMMITTER_COMMITTER"
INI_FILE, INI_SECTION = "magic-committer.ini", "magic-committer"
TOML_FILE, TOML_TABLE = "pyproject.toml", "magic-committer"
KEY = "committer"
FILE_BYTES_MAX = 1024**2
"""A larger file is not read."""
_SAME = {"s3a": "s3", "s3n": "s3"}


def committer_for(dest: str, said: str | None) -> CommitterClass:
    """The committer of a new job.

    Args:
        dest: the destination's URL.
        said: the name that the caller gave; None: none.

    Raises:
        WrongType, OptionError: a name is unknown, or a setting cannot be read. The message says
            where it stands.
    """
    if said is not None:
        return named(said)
    for source, setting in _settings():
        try:
            name = _for_scheme(setting, scheme_of(dest))
            if name is not None:
                return named(name)
        except MagicError as error:
            raise OptionError(f"{source}: {error.message}", hint=error.hint) from error
    return named(default_for(dest))


def _settings() -> list[tuple[str, object]]:
    """What the environment says, or else the nearest file: where it stands, and what."""
    text = os.environ.get(VARIABLE, "").strip()
    if text:
        return [(VARIABLE, _names(VARIABLE, f"{VARIABLE}=", text))]
    try:
        here = Path.cwd()
    except OSError:  # the working directory is gone
        return []
    for directory in (here, *here.parents):
        for name, read in ((INI_FILE, _ini), (TOML_FILE, _toml)):
            path = directory / name
            try:
                setting = read(path)
            except (FileNotFoundError, NotADirectoryError, PermissionError, IsADirectoryError):
                continue
            if setting is not None:
                return [(str(path), setting)]
    return []


def _names(source: str, before: str, text: str) -> str | dict[str, str]:
    """Read ``directory``, or ``s3=directory,file=manifest``.

    Args:
        source, before: where it stands, and what stands before it there, for the message.

    Raises:
        OptionError: a part of it does not name a committer for a scheme.
    """
    if "=" not in text:
        return text
    found: dict[str, str] = {}
    for part in text.split(","):
        scheme, equals, name = (word.strip() for word in part.partition("="))
        if not (scheme and equals and name):
            raise OptionError(
                f"{source}: {part.strip()!r} does not name a committer for a scheme",
                hint=f"Write {before}directory, or {before}s3=directory",
            )
        found[scheme.lower()] = name
    return found


def _for_scheme(setting: object, scheme: str) -> str | None:
    """The name that a setting says for a scheme; None if it says none.

    Raises:
        OptionError: the setting is neither a name nor a table of names.
    """
    if isinstance(setting, str):
        return setting
    if isinstance(setting, dict) and all(isinstance(name, str) for name in setting.values()):
        found: str | None = setting.get(scheme, setting.get(_SAME.get(scheme, scheme)))
        return found
    raise OptionError(
        f"{KEY} is a name, or a table of schemes and names, not {setting!r:.80}",
        hint=f'Write {KEY} = "directory"',
    )


def _read(path: Path) -> str:
    with path.open("rb") as file:
        data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise OptionError(f"{path} has more than {FILE_BYTES_MAX} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise OptionError(f"{path} is not UTF-8: {error}") from error


@lru_cache(maxsize=1)
def _parsed(text: str) -> Any:
    """The document of a text of TOML; nobody changes it. The file is read for each job, but only
    parsed when its text is another one: 8 KiB take 4 ms of CPU, a fifth of a small job's."""
    return tomllib.loads(text)


def _toml(path: Path) -> object:
    try:
        document = _parsed(_read(path))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise OptionError(f"{path} is no TOML: {error}") from error
    tool = document.get("tool")
    table = tool.get(TOML_TABLE) if isinstance(tool, dict) else None
    if table is None:
        return None
    if not isinstance(table, dict):
        raise OptionError(f"{path}: [tool.{TOML_TABLE}] is no table")
    _refuse_others(path, table.keys() - {KEY})
    found: object = table.get(KEY)
    return found


def _ini(path: Path) -> object:
    parser = ConfigParser(interpolation=None)
    try:
        parser.read_string(_read(path))
    except IniError as error:
        raise OptionError(f"{path} is no ini file: {error.message}") from error
    if not parser.has_section(INI_SECTION):
        return None
    values = dict(parser.items(INI_SECTION))
    _refuse_others(path, values.keys() - {KEY})
    text = values.get(KEY, "").strip()
    if not text:
        return None
    return _names(str(path), f"{KEY} = ", text)


def _refuse_others(path: Path, names: set[str]) -> None:
    if names:
        raise OptionError(
            f"{path}: {', '.join(sorted(names))}: no setting of magic-committer",
            hint=f"There is one: {KEY}",
        )
