"""Exit codes: of which kind a failure is, for scripts and cron.

They are those of Hadoop's tools (``LauncherExitCodes``, Hadoop 3.1 to 3.5), where those have one;
``hadoop s3guard uploads`` uses 0, 44 and 46 in the same sense.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magic_committer.errors import MagicError

OK = 0
FAILED = 1
USAGE = 2  # Hadoop has 40 and 42; 2 is every other program's
FORBIDDEN = 43
NOT_FOUND = 44
BAD_STATE = 46
NO_ANSWER = 48
INTERRUPTED = 130

MEANINGS = {
    OK: "done; nothing is wrong",
    FAILED: "something was tried and failed",
    USAGE: "what was typed is wrong: a command, an option, a value",
    FORBIDDEN: "the store refuses these credentials",
    NOT_FOUND: "no such bucket, job or file",
    BAD_STATE: "not what was expected: a count, a job's state, an invalid file, an unfit store",
    NO_ANSWER: "the store did not answer",
    INTERRUPTED: "interrupted: what was done stays done, the same command goes on from there",
}
"""For people: the table in the docs is this one."""


def code_of(error: MagicError) -> int:
    """The exit code for an error: of the first class in the table that it is. An upload that failed
    because of the store has the store's; a local file has the system's. Pure."""
    from magic_committer import errors  # late: `--help` needs none

    codes: tuple[tuple[tuple[type[MagicError], ...], int], ...] = (
        ((errors.OptionError, errors.PathError), USAGE),
        ((errors.PermissionDenied,), FORBIDDEN),
        ((errors.BucketNotFound, errors.NotFound, errors.JobNotFound), NOT_FOUND),
        ((errors.Unanswered,), NO_ANSWER),
        ((errors.FormatError, errors.NotSupported), BAD_STATE),
        ((errors.StoreError,), FAILED),
    )
    cause = error.__cause__
    if isinstance(error, errors.UploadFailed):
        return code_of(cause) if isinstance(cause, errors.StoreError) else FAILED
    if isinstance(cause, OSError | ValueError) and type(error) is errors.MagicError:
        missing = isinstance(cause, FileNotFoundError | NotADirectoryError)
        return NOT_FOUND if missing else FORBIDDEN if isinstance(cause, PermissionError) else FAILED
    return next((code for kinds, code in codes if isinstance(error, kinds)), BAD_STATE)


def together(codes: Iterable[int]) -> int:
    """The exit code of several parts of a command: if all ended the same way, theirs; else
    `BAD_STATE`. `OK` if there was none. Pure."""
    different = set(codes) or {OK}
    return different.pop() if len(different) == 1 else BAD_STATE
