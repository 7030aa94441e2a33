"""What may be done about an error, as data: which call, for which job, with which arguments.

An error carries its remedies (`MagicError.remedies`), and whoever shows it words them: the library
by `in_python`, the command line by `as_command`. No other module writes a call as text, and the
names of options stand in the tables below only: a test looks. Pure.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from magic_committer._quantities import KEYS_NAMED_MAX, counted, duration

Call = Literal[
    "abort", "adopt", "cleanup", "commit", "doctor", "force_abort", "inspect", "recover", "show",
    "start",
]  # fmt: skip
"""A function of the package; ``"commit"``: `Job.commit`; ``"show"``: `Job.state`; ``"doctor"``: the
command of that name, which has no call in Python."""

# The names ----------------------------------------------------------------------------------------

DEAD_AFTER = "dead_after"
"""The option that says how long nothing of a job must have changed for the job to count as dead."""


def _each(flag: str, keys: Sequence[str]) -> list[str]:
    return [word for key in keys[:KEYS_NAMED_MAX] for word in (flag, key)]


def _if_set(flag: str, value: object) -> list[str]:
    return [flag] if value else []


FLAGS: dict[str, tuple[str, Callable[[str, Any], list[str]]]] = {
    "accept": (
        "--accept",
        lambda flag, keys: [w for k in keys[:KEYS_NAMED_MAX] for w in (flag, k)],
    ),
    "adopt": ("--adopt", _if_set),
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
        options: further arguments by name, as the Python call takes them.
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
    """The remedy as a Python expression that can be pasted; a command where Python has no such
    call. A list of many keys is named by the attribute of ``error`` that holds it."""
    if remedy.call == "doctor":
        return as_command(remedy)
    options = dict(remedy.options)
    if options.pop("adopt", False):
        limit = {DEAD_AFTER: options.pop(DEAD_AFTER)} if DEAD_AFTER in options else {}
        first = in_python(replace(remedy, call="adopt", options=limit))
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


def as_command(remedy: Remedy, way: Sequence[str] = ()) -> str:
    """The remedy as a command, quoted for a shell; a Python call where no command does that.
    ``way``: global options that lead to the same store, as words: ``("--profile", "ops")``."""
    stays = remedy.call == "recover" and "leave_visible" in remedy.options
    if stays or remedy.call not in COMMANDS or not remedy.options.keys() <= FLAGS.keys():
        return in_python(remedy)
    words, always = COMMANDS[remedy.call]
    line = ["magic-committer", *words, remedy.dest, *filter(None, (remedy.job_id,)), *always]
    for name, value in remedy.options.items():
        flag, written = FLAGS[name]
        line += written(flag, value)
    keys = remedy.options.get("accept")
    more = len(keys) - KEYS_NAMED_MAX if isinstance(keys, tuple) else 0
    rest = f" (and {counted(more, 'key')} more, see --format json)" if more > 0 else ""
    return f"{shlex.join([*line, *way])}{rest}"


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
