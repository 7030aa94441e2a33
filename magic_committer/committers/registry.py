"""The committers by name. A committer is imported when a job first needs it.

A package may bring committers: entry points of the group `ENTRY_POINTS`, each a name and a class
that has what `base.CommitterClass` says. A name of this library cannot be taken by another.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, cast

from magic_committer.committers.base import CommitterClass
from magic_committer.errors import OptionError, WrongType
from magic_committer.stores.urls import is_tree_url

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINTS = "magic_committer.committers"
"""The group of entry points by which packages bring committers."""

COMMITTERS: Mapping[str, str] = {
    "magic": "magic_committer.committers.magic:MagicCommitter",
    "directory": "magic_committer.committers.staging:DirectoryCommitter",
    "partitioned": "magic_committer.committers.staging:PartitionedCommitter",
    "manifest": "magic_committer.committers.manifest:ManifestCommitter",
    "v1": "magic_committer.committers.classic:V1Committer",
    "v2": "magic_committer.committers.classic:V2Committer",
}
"""The committers of this library: their names in records, and where their classes are."""

ALIASES: Mapping[str, str] = {"staging": "directory", "file": "v1"}
"""Other names that are understood: Hadoop's. A record has the name of `COMMITTERS`. Hadoop's
``file`` is `FileOutputCommitter`: of its two algorithms the one that keeps more promises."""


def default_for(dest: object) -> str:
    """The committer of a destination for which nobody names one. A destination of a scheme that
    nobody knows gets magic, which refuses it with the URLs that it takes. Pure."""
    return "manifest" if is_tree_url(dest) else "magic"


def committer_for(dest: str, said: str | None) -> CommitterClass:
    """The committer of a new job. ``said``: the name that the caller gave; None: none."""
    return named(default_for(dest) if said is None else said)


def known_names() -> list[str]:
    """All names that `named` understands, this library's first."""
    return [*COMMITTERS, *ALIASES, *sorted(_others().keys() - COMMITTERS.keys() - ALIASES.keys())]


def real_name(name: str) -> str:
    """The name that a record has, for a name or an alias, in any case."""
    if not isinstance(name, str):
        raise WrongType(
            f"committer is a name, not {type(name).__name__}: {name!r:.80}",
            hint="Pass committer='magic'",
        )
    word = name.casefold()
    word = ALIASES.get(word, word)
    if word in COMMITTERS:
        return word
    if name in _others():
        return name
    import difflib  # late, as the next one: they load a lot, and few need them

    known = known_names()
    nearest = difflib.get_close_matches(word, known, n=1)
    raise OptionError(
        f"committer={name!r} is unknown",
        hint=(f"Did you mean {nearest[0]!r}? " if nearest else "")
        + f"There are {', '.join(known)}",
    )


def named(name: str) -> CommitterClass:
    """The class of a committer."""
    real = real_name(name)
    if real in COMMITTERS:
        module, _, attribute = COMMITTERS[real].partition(":")
        return cast("CommitterClass", getattr(import_module(module), attribute))
    found = _others()[real]
    instead = f"Repair that package, or name another committer: {', '.join(COMMITTERS)}"
    package = found.dist.name if found.dist is not None else "a package"
    try:
        loaded = found.load()
    except Exception as error:  # the package may raise anything
        raise OptionError(
            f"committer={name!r} cannot be loaded from {found.value} of {package}:"
            f" {type(error).__name__}: {error}",
            hint=instead,
        ) from error
    if getattr(loaded, "name", None) != real:
        raise OptionError(
            f"committer={name!r}: {found.value} of {package} is named"
            f" {getattr(loaded, 'name', None)!r}, and a job's record has to find it by its name",
            hint=instead,
        )
    return cast("CommitterClass", loaded)


def _others() -> dict[str, EntryPoint]:
    """The committers that other packages bring."""
    from importlib.metadata import entry_points

    return {one.name: one for one in entry_points(group=ENTRY_POINTS)}
