"""What the library says to people: quantities, hints, and remedies as calls or commands. One kind,
one wording, one place. Pure."""

from __future__ import annotations

import errno
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

# Limits -----------------------------------------------------------------------------------------

KEYS_NAMED_MAX = 20
"""How many keys a message names before it says "and N more"."""
NAMED_MAX = 100
"""How many keys of each kind a report names."""

_SIZES = (("TiB", 1024**4), ("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024))
_AGES = (("d", 86_400), ("h", 3600), ("min", 60))


def age_words(seconds: float | None) -> str:
    """``"90 min"``, ``"2.5 h"``, ``"24 h"``; "?" where a store does not tell.

    A unit is used from two of it on: a limit of one day reads as ``"24 h"``, as it is typed.
    """
    if seconds is None:
        return "?"
    for unit, size in _AGES:
        if seconds >= 2 * size:
            number = seconds / size
            said = f"{number:.1f}" if number < 10 else f"{number:.0f}"
            return f"{said.removesuffix('.0')} {unit}"
    return f"{seconds:.0f} s"


def duration(seconds: float) -> str:
    """Seconds, as commands accept them: ``"90m"``, ``"24h"``, ``"7d"``, ``"1.5s"``."""
    for unit, size, least in (("d", 86_400, 2), ("h", 3600, 1), ("m", 60, 1)):
        if seconds >= least * size and not seconds % size:
            return f"{seconds // size:.0f}{unit}"
    return f"{seconds:.3f}".rstrip("0").rstrip(".") + "s" if seconds else "0"


def bytes_words(size: int | None) -> str:
    """``"12.5 MiB"``; "?" where it is not known."""
    if size is None:
        return "?"
    for unit, of in _SIZES:
        if size >= of:
            return f"{size / of:.1f} {unit}"
    return f"{size} B"


def counted(number: int, thing: str) -> str:
    """``"1 file"``, ``"2 files"``, for a thing whose plural has an s."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def counted_are(number: int, thing: str) -> str:
    """``"1 file is"``, ``"2 files are"``."""
    return f"{counted(number, thing)} {'is' if number == 1 else 'are'}"


def name_some(names: Sequence[str], limit: int = KEYS_NAMED_MAX) -> str:
    """Join up to ``limit`` names for a message, and say how many more there are."""
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit:,} more"


def pending_words(tasks: int, files: int, size: int) -> str:
    """``"3 files of 2 tasks, 1.5 MiB"``."""
    return f"{counted(files, 'file')} of {counted(tasks, 'task')}, {bytes_words(size)}"


# Hints that more than one module gives ------------------------------------------------------------


# Of a job and its attempts ------------------------------------------------------------------------

ID_USED_ONCE = (
    "A job id is used once: give another, or none and one is drawn; to start the same job again,"
    " pass exist_ok=True"
)
ENDED_OR_NEVER = "It may have ended, either way, or never been: look at the destination"
"""Of a job without a record."""
ANOTHER_ATTEMPT = "Run the task again as another attempt: job.task(...)"
"""Of an attempt that will never be committed."""
CLOSE_FIRST = (
    "Close each file before its block or its task ends, best by `with job.open(...) as f`; what"
    " comes too late needs another `write`, or another job.task(...)"
)
"""Of a file that was open, or was opened, when its attempt was committed."""
OWN_NAME = "Give each attempt of a task a name of its own; the job's sweep removes these files"
"""Of an attempt whose name another one has used."""

_GUESSED = {
    **dict.fromkeys(("put", "upload", "upload_file"), "put_file(path, name)"),
    **dict.fromkeys(("write", "save"), "open(name, 'w'), write_text(name, text) or write_bytes"),
    "path": "'magic://bucket/dest/name' in a `write` block, or filesystem=job.filesystem()",
    **dict.fromkeys(("close", "commit"), "the end of the `with` block"),
}
"""What callers look for instead of the right call."""


def no_attribute(of: object, name: str, call: str = "", whose: str = "") -> AttributeError:
    """Of a name that an object does not have; ``call``, of ``whose``, is the right one if known."""
    call = call or _GUESSED.get(name, "")
    told = f". Use {call}{whose}" if call else ""
    return AttributeError(f"{type(of).__name__!r} object has no attribute {name!r}{told}")


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
    if error.errno == errno.ENAMETOOLONG:
        return (
            "An element of a local path has 255 bytes at most: shorten it, or use task.open(name)"
        )
    return "See the options buffer_dir and buffer_bytes_max"


# Of paths -----------------------------------------------------------------------------------------

S3_URL = "Write 's3://bucket/path'"
RELATIVE_NAME = "Write it relative to the destination: 'a/b.csv'"
SOURCE_CHANGED = (
    "The object was changed or deleted since it was listed: copy again when nobody writes there"
)
TOKEN_OUT = "The clean-up of that job would abort this upload: take the token out"
"""Of a name with the token of another job."""


def swept_there(what: str) -> str:
    """Of a path in a committer's own directory; ``what`` is to be chosen."""
    return f"What lies in there is swept when a job ends: choose another {what}"


# What may be done about an error ------------------------------------------------------------------
#
# What may be done about an error, as data: which call, for which job, with which arguments.
#
# An error carries its remedies (`MagicError.remedies`), and its reader words them: the
# library by `in_python`, the command line by `as_command`. No other module writes a call as text,
# and the names of options stand in the tables below only: a test looks. Pure.


Call = Literal[
    "abort", "adopt", "cleanup", "commit", "doctor", "force_abort", "inspect", "lifecycle",
    "recover", "show", "start",
]  # fmt: skip
"""A function of the package; ``"commit"``: `Job.commit`; ``"show"``: `Job.state`."""

# The names ----------------------------------------------------------------------------------------

DEAD_AFTER = "dead_after"
"""The option that says how long nothing of a job must have changed for the job to count as dead."""


def _each(flag: str, keys: Sequence[str]) -> list[str]:
    return [word for key in keys[:KEYS_NAMED_MAX] for word in (flag, key)]


def _if_set(flag: str, value: object) -> list[str]:
    return [flag] if value else []


FLAGS: dict[str, tuple[str, Callable[[str, Any], list[str]]]] = {
    "accept": ("--accept", _each),
    "adopt": ("--adopt", _if_set),
    "days": ("--days", lambda flag, value: [flag, str(value)]),
    "dry_run": ("--dry-run", _if_set),
    "expect": ("--expect", lambda flag, value: [flag, str(value)]),
    "leave_visible": ("--force", _if_set),
    "revert": ("--revert", _if_set),
    DEAD_AFTER: ("--dead-after", lambda flag, seconds: [flag, duration(seconds)]),
}
"""Each option of a call in Python: its flag at the command line, and how its value is written
there. ``adopt`` is a flag only: in Python it is a call of its own, which goes before. What stays
visible is left by ``abort --force``."""

COMMANDS: dict[Call, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "abort": (("job", "abort"), ()),
    "adopt": (("job", "commit"), ("--adopt",)),
    "cleanup": (("cleanup",), ()),
    "commit": (("job", "commit"), ()),
    "doctor": (("doctor",), ()),
    "force_abort": (("job", "abort"), ("--force",)),
    "inspect": (("job", "list"), ()),
    "lifecycle": (("lifecycle", "ensure"), ()),
    "recover": (("job", "recover"), ()),
    "show": (("job", "show"), ()),
}
"""Each call as a command: its words, and the flags that it always has. `start` is none."""


# The data -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Remedy:
    """One thing that may be done about an error. A program needs no text to do it::

        >>> job = mc.start("s3://bucket/table", job_id="nightly")
        >>> try:
        ...     mc.recover("s3://bucket/table", "nightly")
        ... except mc.JobTooYoung as error:
        ...     (remedy,) = error.remedies
        >>> remedy.call, remedy.dest, remedy.job_id, remedy.why
        ('recover', 's3://bucket/table/', 'nightly', 'if you know that its driver is dead')
        >>> getattr(mc, remedy.call)(remedy.dest, remedy.job_id, **remedy.options).outcome
        'aborted'

    The remedies of one error exclude each other: finish the job, say, or undo it.

    Attributes:
        call: what to call, e.g. ``"recover"``; see `Call`.
        dest: the destination's URL, the first argument.
        job_id: the job's id, the second argument; "" for a call about a whole destination.
        why: what it is for, or when it is right, in a few words: ``"finish it"``.
        options: further arguments by name, as for the Python call.
        keys_in: the attribute of the error that holds the keys of ``options["accept"]``. The
            Python wording names it where the keys are too many for a line.
    """

    call: Call
    dest: str
    job_id: str = ""
    why: str = ""
    options: Mapping[str, object] = field(default_factory=dict)
    keys_in: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values: ``call``, ``dest``, ``job_id``, ``why``, ``options``."""
        options = {k: list(v) if isinstance(v, tuple) else v for k, v in self.options.items()}
        said = {name: getattr(self, name) for name in ("call", "dest", "job_id", "why")}
        return {**said, "options": options}


# The words ----------------------------------------------------------------------------------------


def in_python(remedy: Remedy) -> str:
    """The remedy as Python that can be pasted. A list of many keys is named by the attribute of
    ``error`` that holds it."""
    options = dict(remedy.options)
    if options.pop("adopt", False):
        limit = {DEAD_AFTER: options.pop(DEAD_AFTER)} if DEAD_AFTER in options else {}
        first = in_python(replace(remedy, call="adopt", options=limit))
        if remedy.call == "recover":  # who adopts a job gives their word that it is dead
            options[DEAD_AFTER] = 0
        return f"{first}; {in_python(replace(remedy, options=options))}"
    names = [repr(name) for name in (remedy.dest, remedy.job_id) if name]
    written = [f"{name}={_python(remedy, value)}" for name, value in options.items()]
    job = f"attach({', '.join(names)})"
    match remedy.call:
        case "commit":
            return f"magic_committer.{job}.commit({', '.join(written)})"
        case "show":
            return f"magic_committer.{job}.state"
        case "start":
            names[1:] = [f"job_id={name}" for name in names[1:]]
    return f"magic_committer.{remedy.call}({', '.join([*names, *written])})"


def _python(remedy: Remedy, value: object) -> str:
    if isinstance(value, tuple):
        many = len(value) > KEYS_NAMED_MAX and remedy.keys_in
        return f"error.{remedy.keys_in}" if many else repr(list(value))
    if isinstance(value, float) and value.is_integer():
        return repr(int(value))
    return repr(value)


def as_word(job_id: str) -> tuple[str, ...]:
    """A job's id as words of a command; one that looks like an option must be the last word."""
    return ("--", job_id) if job_id.startswith("-") else (job_id,)


def as_command(remedy: Remedy, way: Sequence[str] = ()) -> str:
    """The remedy as a command, quoted for a shell; a Python call where no command does that.
    ``way``: global options that lead to the same store, as words: ``("--profile", "ops")``."""
    stays = remedy.call == "recover" and "leave_visible" in remedy.options
    if stays or remedy.call not in COMMANDS or not remedy.options.keys() <= FLAGS.keys():
        return in_python(remedy)
    words, always = COMMANDS[remedy.call]
    job = as_word(remedy.job_id) if remedy.job_id else ()
    last = len(job) > 1
    line = ["magic-committer", *words, remedy.dest, *(() if last else job), *always]
    for name, value in remedy.options.items():
        flag, written = FLAGS[name]
        line += written(flag, value)
    keys = remedy.options.get("accept")
    more = len(keys) - KEYS_NAMED_MAX if isinstance(keys, tuple) else 0
    rest = f" (and {counted(more, 'key')} more, see --format json)" if more > 0 else ""
    return f"{shlex.join([*line, *way, *(job if last else ())])}{rest}"


def sentence(advice: str, remedies: Sequence[Remedy], worded: Callable[[Remedy], str]) -> str:
    """What to do, in a line: ``"Wait. Finish it: CALL; or undo it: CALL"``. Each begins with what
    it is for, a small letter where it stands inside the line."""
    ways = ""
    for remedy in remedies:
        why = remedy.why
        if ways:
            ways += "; or, " if why.startswith("if ") else "; or "
        else:
            why = why[:1].upper() + why[1:]
        ways += f"{why}: {worded(remedy)}"
    return ". ".join(filter(None, (advice, ways)))


# Notes --------------------------------------------------------------------------------------------

_NOTED = "_magic_committer_noted"


def add_note(error: BaseException, told: str, remedy: Remedy) -> None:
    """Add a note to an exception that is not ours to change, Ctrl-C say: what is known, then the
    remedy in Python. The data stays with the exception, for `reword_notes`."""
    note = sentence(told, (remedy,), in_python)
    error.add_note(note)
    noted: dict[str, tuple[str, Remedy]] = {**getattr(error, _NOTED, {}), note: (told, remedy)}
    setattr(error, _NOTED, noted)


def reword_notes(error: BaseException, worded: Callable[[Remedy], str]) -> None:
    """Write the remedies in an exception's notes by another function than `in_python`."""
    noted: dict[str, tuple[str, Remedy]] = getattr(error, _NOTED, {})
    for number, note in enumerate(getattr(error, "__notes__", [])):
        if note in noted:
            told, remedy = noted[note]
            error.__notes__[number] = sentence(told, (remedy,), worded)
