"""Elements of a path: which ones are allowed, and Hadoop's rules on lists of them.

The lower half of `magic_committer.hadoop.paths`; it knows no buckets and no jobs. The functions on
lists give the same answers as ``MagicCommitPaths`` of Hadoop 3.5.0. One exception: the ``__magic``
of Hadoop 3.3 is a magic directory too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from os import PathLike
from pathlib import PurePath

from magic_committer._hints import RELATIVE_NAME, S3_URL
from magic_committer.errors import PathError, WrongType

# Names (org.apache.hadoop.fs.s3a.commit.CommitConstants, Hadoop 3.5.0)
MAGIC = "__magic"
"""The magic directory of Hadoop up to 3.3, shared by all jobs."""
MAGIC_JOB_PREFIX = "__magic_job-"
MAGIC_STREAM = "__magic_stream"
"""Our own name: the directory of streaming ledgers. It is never written through a magic path."""
BASE = "__base"

SHOWN_CHARS_MAX = 200
"""How many characters of a bad path an error message repeats."""

# Control characters, lone surrogates and the two characters that XML cannot hold.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


_SLASHES_EATEN = re.compile(r"(s3[an]?):/+", re.IGNORECASE)


def url_text(url: object) -> str:
    """A URL that a caller passed; it must be text.

    Raises:
        WrongType: it is not text. Most often it is a `Path`, which has turned two slashes into one.
    """
    if isinstance(url, str):
        return url
    if not isinstance(url, PathLike):
        raise WrongType(f"a URL is text, not {type(url).__name__}", hint=S3_URL)
    got = f"a {type(url).__name__}"
    text = url.as_posix() if isinstance(url, PurePath) else str(url)
    if "@" in text:  # the part before it may be a secret
        raise WrongType(f"a URL is text, not {got}", hint=S3_URL)
    right = _SLASHES_EATEN.sub(r"\1://", text)
    if not isinstance(url, PurePath):
        raise WrongType(f"a URL is text, not {got}", hint=f"Pass {right!r}")
    raise WrongType(
        f"a URL is text, not {got}: {text!r}: it makes one slash of two",
        hint=f"Pass {right!r}" if right != text else S3_URL,
    )


def name_text(name: object) -> str:
    """The name of a file that a caller passed; it must be text.

    Raises:
        WrongType: it is not text.
    """
    if isinstance(name, str):
        return name
    if isinstance(name, PurePath):
        raise WrongType(
            f"a file's name is text, not a {type(name).__name__}", hint=f"Pass {name.as_posix()!r}"
        )
    raise WrongType(
        f"a file's name is text, not {type(name).__name__}",
        hint=RELATIVE_NAME,
    )


def split_key(key: str) -> list[str]:
    """The elements of a key or relative name; none for "".

    Raises:
        PathError: an element is empty, "." or "..", or has control characters.
    """
    check_characters(key)
    elements = key.split("/") if key else []
    for element in elements:
        if not element:
            raise PathError(
                f"{shown(key)} has an empty element",
                hint="S3 takes 'a//b' and 'a/b' for two keys, Hadoop for one: write one slash",
            )
        if element in (".", ".."):
            raise PathError(
                f"{shown(key)} has the element {element!r}",
                hint="In S3 it is a name like any other, in Hadoop it moves: write the path out",
            )
    return elements


def check_characters(key: str) -> None:
    """Refuse characters that S3's listings cannot carry (`PathError`)."""
    found = _UNSAFE.search(key)
    if found:
        raise PathError(
            f"{shown(key)} has the character {found[0]!r}",
            hint="S3's listings cannot carry control characters or halves of characters",
        )


def shown(path: str) -> str:
    """A path for an error message: in quotes and not too long."""
    return repr(path if len(path) <= SHOWN_CHARS_MAX else path[:SHOWN_CHARS_MAX] + "…")


# Hadoop's functions (MagicCommitPaths) on lists of elements ---------------------------------------


def is_magic_element(element: str) -> bool:
    """Whether a directory with this name is a magic directory."""
    return element == MAGIC or element.startswith(MAGIC_JOB_PREFIX)


def is_control_element(element: str) -> bool:
    """Whether a directory with this name belongs to committers and never to data."""
    return is_magic_element(element) or element == MAGIC_STREAM


def is_magic_path(elements: Sequence[str]) -> bool:
    """Whether an element is a magic directory."""
    return any(map(is_magic_element, elements))


def magic_element_index(elements: Sequence[str]) -> int:
    """The index of the first magic directory.

    Raises:
        PathError: there is none.
    """
    for index, element in enumerate(elements):
        if is_magic_element(element):
            return index
    raise PathError(
        f"no element {MAGIC_JOB_PREFIX}… or {MAGIC} in {shown('/'.join(elements))}",
        hint=f"A magic path is D/{MAGIC_JOB_PREFIX}<job>/…/{BASE}/<name>",
    )


def magic_parents(elements: Sequence[str]) -> list[str]:
    """The elements above the magic directory: the destination."""
    return list(elements[: magic_element_index(elements)])


def magic_children(elements: Sequence[str]) -> list[str]:
    """The elements below the magic directory."""
    return list(elements[magic_element_index(elements) + 1 :])


def contains_base(elements: Sequence[str]) -> bool:
    """Whether an element is ``__base``."""
    return BASE in elements


def base_children(elements: Sequence[str]) -> list[str]:
    """The elements after the first ``__base``; none if there is no ``__base``."""
    return list(elements[elements.index(BASE) + 1 :]) if BASE in elements else []


def final_destination(elements: Sequence[str]) -> list[str]:
    """Where a file that is written to a magic path becomes visible.

    Below ``__base`` directories are kept. Without ``__base`` only the last element is kept
    (flattening). A path that is not magic is its own destination.

    Raises:
        PathError: there is nothing below the magic directory, or below ``__base``.
    """
    if not is_magic_path(elements):
        return list(elements)
    children = magic_children(elements)
    kept = base_children(children) if contains_base(children) else children[-1:]
    if not kept:
        below = BASE if children else elements[magic_element_index(elements)]
        raise PathError(f"no file named below {below}", hint=f"Write …/{below}/<name>")
    return magic_parents(elements) + kept
