"""What a command looks at: several paths, ``--recursive``; and what it did not look at, which it
says. A look that finds nothing is an all-clear only for what it has seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from magic_committer._runtime import ProgressFunction, no_progress
from magic_committer.cli import exits
from magic_committer.cli.places import Place
from magic_committer.cli.plain import note
from magic_committer.cli.shell import Shell
from magic_committer.errors import MagicError, StoreError
from magic_committer.maintenance.below import OBJECTS_MAX, Below, Flat, has_deeper, jobs_below

F = TypeVar("F", bound=Callable[..., Any])


def recursive(function: F) -> F:
    """The options ``--recursive`` and ``--max-objects``."""
    for option in (
        click.option(
            "--max-objects", "objects_max", type=click.IntRange(min=1), default=OBJECTS_MAX,
            metavar="N", show_default=f"{OBJECTS_MAX:,}",
            help="With --recursive: list at most N objects below PATH. If there are more, the rest"
            " is not looked at, and the exit code is 46.",
        ),
        click.option(
            "--recursive", "deep", is_flag=True,
            help="Look at all directories below PATH too: one listing of its objects, a request for"
            " each 1,000.",
        ),
    ):  # fmt: skip
        function = option(function)
    return function


def unlooked(path: Place) -> str:
    """The sentence on what a look without ``--recursive`` leaves out."""
    return f"only {path.url} itself was looked at; --recursive looks below"


def stopped(path: Place, found: Below | Flat) -> tuple[str, ...]:
    """The sentence on a listing that met its limit; nothing if it did not."""
    if not found.stopped_at:
        return ()
    return (
        f"{found.objects:,} objects were listed below {path.url}, up to the key {found.stopped_at};"
        " what comes after it was not looked at: give a deeper path, or a greater --max-objects",
    )


def unseen(path: Place, found: Below) -> tuple[str, ...]:
    """Why not all jobs below a path are known: a sentence each; nothing if they are."""
    return (*found.problems, *stopped(path, found))


def below(
    shell: Shell, path: Place, objects_max: int, progress: ProgressFunction
) -> tuple[Mapping[Place, tuple[str, ...]], tuple[str, ...]]:
    """The destinations at a path and below it that have jobs, with the ids of these; and why not
    all are known, a sentence each.

    Raises:
        StoreError: what is below it could not be listed.
    """
    found = jobs_below(shell.runtime(path.bucket, progress), path, objects_max)
    return found.jobs, unseen(path, found)


class Reach:
    """The paths of one command, and how the looks at them ended.

    Args:
        many: a path that fails is told and does not stop the others; else its error is the
            command's.
        objects_max: of ``--max-objects``; None: not ``--recursive``.

    Attributes:
        not_looked_at: URLs of what failed, and of the paths below which something was left out.
    """

    def __init__(self, shell: Shell, *, many: bool, objects_max: int | None = None) -> None:
        self.not_looked_at: list[str] = []
        self._shell = shell
        self._many = many or objects_max is not None
        self._objects_max = objects_max
        self._codes: list[int] = []
        self._notes: list[str] = []

    @contextmanager
    def trying(self, url: str) -> Iterator[None]:
        """Around the work on one path, or on one destination below it. Its exit code is what is
        added within, else that of its error, else `OK`."""
        before = len(self._codes)
        try:
            yield
        except MagicError as error:
            if not self._many:
                raise
            note(f"magic-committer: {url}: {error}")
            self._codes.append(exits.code_of(error))
            self.not_looked_at.append(url)
        else:
            if len(self._codes) == before:
                self._codes.append(exits.OK)

    def destinations(
        self, path: Place, progress: ProgressFunction = no_progress
    ) -> Mapping[Place, tuple[str, ...] | None]:
        """The destinations to be looked at for a path, each with the ids of its jobs where these
        are known: the path alone, or with ``--recursive`` all below it that have jobs.

        Raises:
            StoreError: the objects below it could not be listed.
        """
        if self._objects_max is None:
            return {path: None}
        jobs, left = below(self._shell, path, self._objects_max, progress)
        for line in left:
            note(f"magic-committer: {line}")
        if left:
            self.not_looked_at.append(path.url)
            self._codes.append(exits.BAD_STATE)
        return jobs

    def found_nothing(self, path: Place) -> bool:
        """A look at a path found nothing. Whether there are directories below it that were not
        looked at; `tell` says so."""
        if self._objects_max is not None or path.url in self.not_looked_at:
            return False
        try:
            if not has_deeper(self._shell.runtime(path.bucket), path):
                return False
        except StoreError:
            pass  # nobody knows what is below: it was not looked at in any case
        self.not_looked_at.append(path.url)
        self._notes.append(f"note: {unlooked(path)}")
        return True

    def tell(self) -> None:
        """Say, after the results, what was not looked at."""
        for line in self._notes:
            self._shell.note(line)
        self._notes.clear()

    def add(self, code: int) -> None:
        """One more part of the command ended with this exit code."""
        self._codes.append(code)

    @property
    def code(self) -> int:
        """The exit code of all looks together."""
        return exits.together(self._codes)
