"""Hints that more than one module gives: one kind, one wording, one place."""

from __future__ import annotations

import errno
from collections.abc import Mapping

# Of a job and its attempts ------------------------------------------------------------------------

ID_USED_ONCE = (
    "A job id is used once: give another, or none and one is drawn; a start that is made again, for"
    " the job that it started before, takes exist_ok=True"
)
ENDED_OR_NEVER = "It may have ended, either way, or never been: look at the destination"
"""Of a job without a record."""
ANOTHER_ATTEMPT = "Run the task again as another attempt: job.task(...)"
"""Of an attempt that will never be committed."""
CLOSE_FIRST = (
    "Close each file, best by `with task.open(...) as f`, before the attempt is committed; write"
    " what came too late as another attempt, of a task of its own: job.task(...)"
)
"""Of a file that was open, or was opened, when its attempt was committed."""
OWN_NAME = "Give each attempt of a task a name of its own; the job's sweep takes these files"
"""Of an attempt whose name another one has used."""

_PUT = "put_file(path, name)"
_URL = "filesystem=….filesystem(), or in a `write` block the URL 'magic://bucket/dest/name'"
OF_FILES = {
    **dict.fromkeys(("upload", "upload_file", "put", "put_object", "add", "add_file"), _PUT),
    **dict.fromkeys(("write", "save", "create"), "open(name, 'w'), or write_text(name, text)"),
    **dict.fromkeys(("path", "url", "uri", "join"), _URL),
    "close": "the end of its `with` block",
}
"""What else callers look for where files are opened: the right call."""
_TASK = "`with job.task(1) as task:` and there task."
_OF_A_TASK = (
    *("open", "local_file", "directory", "filesystem", "write_bytes", "write_text"),
    *("put_file", "put_directory", "copy", "discard"),
)
OF_TASKS = {
    **{name: f"{_TASK}{call}" for name, call in OF_FILES.items() if name not in ("path", "close")},
    **{name: f"{_TASK}{name}(...)" for name in _OF_A_TASK},
    "close": "commit([task.result]), or abort()",
}
"""The same of a job of tasks."""


def no_attribute(kind: str, name: str, calls: Mapping[str, str]) -> AttributeError:
    """Of a name that an object does not have; ``calls`` has those that are often guessed."""
    told = f". Use {calls[name]}" if name in calls else ""
    return AttributeError(f"{kind!r} object has no attribute {name!r}{told}")


# Of what was read ---------------------------------------------------------------------------------

UPGRADE = "Upgrade magic-committer, if a newer version wrote it"
SAME_VERSION = "Use the same version of magic-committer in all processes of a job"

# Of this machine ----------------------------------------------------------------------------------


def of_disk(error: OSError) -> str:
    """Of a local file that could not be opened or written."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return (
            "Too many files are open, connections among them: keep fewer files open at a time, or"
            " raise the limit before the program starts: ulimit -n 4096"
        )
    return "See the options buffer_dir and buffer_bytes_max"


# Of paths -----------------------------------------------------------------------------------------

S3_URL = "Write 's3://bucket/path'"
RELATIVE_NAME = "Write it relative to the destination: 'a/b.csv'"
TOKEN_OUT = "The clean-up of that job would abort this upload: take the token out"
"""Of a name with the token of another job."""


def swept_there(what: str) -> str:
    """Of a path in a committer's own directory; ``what`` is to be chosen."""
    return f"What lies in there is swept when a job ends: choose another {what}"
