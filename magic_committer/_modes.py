"""The words for modes, this library's and Spark's. All calls understand both, in any case.

=====================  ===================================  ====================================
this library           Spark                                where there is data
=====================  ===================================  ====================================
``append``             ``append``                           writes beside it
``fail``               ``error``, ``errorifexists``         raises
``fail_partitions``                                         raises if it is in the same partitions
``replace``            ``overwrite``                        replaces all of it
``replace_partitions`` ``overwrite_partitions``             replaces the same partitions
                       ``ignore``                           does nothing (Spark's calls only)
=====================  ===================================  ====================================

A record holds the library's word. `StartedJob.said_mode` keeps the caller's word, so that hints use
the caller's words. Pure.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Literal, get_args

from magic_committer.errors import OptionError, WrongType
from magic_committer.options import Mode

SparkMode = Literal["error", "errorifexists", "overwrite", "overwrite_partitions"]
"""Spark's words for the modes. Words that both vocabularies have are in `Mode`."""
IgnoreMode = Literal["ignore"]
"""Do nothing where there is data: for `magic_committer.spark` alone."""

IGNORE = "ignore"
_OF_SPARK: Mapping[str, Mode] = {
    "error": "fail",
    "errorifexists": "fail",
    "overwrite": "replace",
    "overwrite_partitions": "replace_partitions",
}
_MODES: Mapping[str, Mode] = {**_OF_SPARK, **{mode: mode for mode in get_args(Mode)}}
_TO_SPARK: Mapping[str, str] = {
    "fail": "error",
    "replace": "overwrite",
    "replace_partitions": "overwrite_partitions",
}


def mode_of(said: str, *, ignore: bool = False) -> Mode:
    """The mode that a caller's word means. ``ignore``: understand ``"ignore"`` too, as ``"fail"``:
    the caller then does nothing instead of raising. Raises OptionError: the word is not a mode, or
    it is ``"ignore"`` in a call that cannot ignore. The hint names the nearest word, in the
    caller's vocabulary."""
    if not isinstance(said, str):
        raise WrongType(
            f"mode is text, not {type(said).__name__}: {said!r:.80}",
            hint=f"Pass one of {', '.join(_known(ignore))}",
        )
    word = said.casefold()
    if word in _MODES:
        return _MODES[word]
    if word == IGNORE and ignore:
        return "fail"
    if word == IGNORE:
        raise OptionError(
            "mode='ignore' is for magic_committer.spark: it leaves the work undone where there is"
            " data, and this call cannot skip what you do with the job that it starts",
            hint="Pass mode='error', and pass over it: except magic_committer.DestinationExists",
        )
    nearest = difflib.get_close_matches(word, _known(ignore), n=1)
    raise OptionError(
        f"mode={said!r} is unknown",
        hint=(f"Did you mean {nearest[0]!r}? " if nearest else "")
        + f"There are {', '.join(_known(ignore))}",
    )


def in_words_of(said: str, mode: Mode) -> str:
    """A mode, in the vocabulary of the caller's word ``said``. If both vocabularies have the word,
    or the caller said none (""), the library's word."""
    sparks = said.casefold() in _OF_SPARK or is_ignore(said)
    return _TO_SPARK.get(mode, mode) if sparks else mode


def in_both(mode: Mode) -> str:
    """A mode for a message with unknown readers: ``'fail' (Spark: 'error')``."""
    return f"{mode!r} (Spark: {_TO_SPARK[mode]!r})" if mode in _TO_SPARK else repr(mode)


def is_ignore(said: str) -> bool:
    """Whether the caller's word is ``ignore``, in any case."""
    return said.casefold() == IGNORE


def _known(ignore: bool) -> list[str]:
    """All words. Spark's words come first in Spark's calls."""
    ours, sparks = list(get_args(Mode)), list(_OF_SPARK)
    return ["append", *sparks, IGNORE, *ours[1:]] if ignore else [*ours, *sparks]
