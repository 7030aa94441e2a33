"""Metrics as a text file, for the textfile collector of Prometheus's node exporter.

A file is replaced as a whole: it is written beside its name and renamed, so that no reader ever
sees half of it. The collector reads ``*.prom``; what is being written has another suffix.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from magic_committer.runtime import new_id


@dataclass(frozen=True, slots=True)
class Metric:
    """A gauge: its name, what it says, and a value for each set of labels."""

    name: str
    help: str
    samples: tuple[tuple[Mapping[str, str], float], ...]


def exposition(metrics: Iterable[Metric]) -> str:
    """The text format, version 0.0.4. Pure."""
    lines: list[str] = []
    for metric in metrics:
        lines.append(f"# HELP {metric.name} {_escaped(metric.help)}")
        lines.append(f"# TYPE {metric.name} gauge")
        for labels, value in metric.samples:
            pairs = ",".join(f'{name}="{_quoted(text)}"' for name, text in labels.items())
            lines.append(f"{metric.name}{{{pairs}}} {value!r}")
    return "".join(f"{line}\n" for line in lines)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', r"\"")


def replace_file(file: Path, text: str) -> None:
    """Write a file so that readers see the old one or the new one.

    Raises:
        OSError: it could not be written; the old one is as it was.
    """
    beside = file.with_name(f".{file.name}.{new_id()}.tmp")
    try:
        with open(beside, "x", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(beside, file)
    except OSError:
        with suppress(OSError):  # the first error is the one to tell
            beside.unlink()
        raise
