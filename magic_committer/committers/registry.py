"""The committers by name. A committer is imported when a job first needs it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import cast

from magic_committer.committers.base import JobCommitter
from magic_committer.errors import OptionError, WrongType
from magic_committer.stores.urls import is_tree_url

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


def committer_for(dest: str, said: str | None) -> type[JobCommitter]:
    """The committer of a new job. ``said``: the name that the caller gave; None: none."""
    return named(default_for(dest) if said is None else said)


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
    import difflib  # late: it loads a lot, and few need it

    known = [*COMMITTERS, *ALIASES]
    nearest = difflib.get_close_matches(word, known, n=1)
    raise OptionError(
        f"committer={name!r} is unknown",
        hint=(f"Did you mean {nearest[0]!r}? " if nearest else "")
        + f"There are {', '.join(known)}",
    )


def named(name: str) -> type[JobCommitter]:
    """The class of a committer."""
    module, _, attribute = COMMITTERS[real_name(name)].partition(":")
    return cast("type[JobCommitter]", getattr(import_module(module), attribute))
