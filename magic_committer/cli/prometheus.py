"""Metrics as a text file, for the textfile collector of Prometheus's node exporter.

The collector reads ``*.prom``; a file that is being written has another suffix (``cli/files.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


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
