"""How often each checker must have a case in which it could fail; see `tests.simulation.cases`."""

from __future__ import annotations

from collections.abc import Mapping

from tests.simulation.cases import Case

CASES: Mapping[str, Case] = {
    "published": Case("I1", "a file came to its place", 1),
    "late publish": Case("I3", "a file came to its place while its job was being undone", 0),
    "undone": Case("I3", "a published file was taken back", 1),
    "zombie": Case("I3", "a process woke after its job was forgotten", 1),
    "decided": Case("I2", "a job was decided", 1),
    "closed committed": Case("I2", "a committed job was closed", 1),
    "closed aborted": Case("I2", "an aborted job was closed", 1),
    "closed reverted": Case("I2", "a reverted job was closed", 1),
    "told committed": Case("I10", 'somebody was told "committed"', 1),
    "told aborted": Case("I10", 'somebody was told "aborted"', 1),
    "told reverted": Case("I10", 'somebody was told "reverted"', 1),
    "told undecided": Case("I10", "a call raised an error that says that it decided nothing", 1),
    "deleted": Case("I7", "old data was taken away as planned", 1),
    "taken by mistake": Case("I6", "a file was taken that was not planned", 0),
    "overwritten": Case("I6", "a job wrote over a file", 1),
    "exclusion": Case("I6", "a job that excludes others was decided while another lived", 1),
    "replaced": Case("I2", "a job that replaces was decided, and there was old data", 1),
    "marked": Case("I8", "a job marked the destination", 1),
    "marked over": Case("I8", "a marker took the place of another", 1),
    "marker by mistake": Case("I8", "the marker of a later job was taken away", 0),
    "freed": Case("I5", "a given id was freed", 1),
    "same id": Case("I5", "a given id was asked for again", 1),
    "stuck": Case("I5", "the last recovery met a job that it could not finish", 0),
    "recovered": Case("I5", "the last recovery met a job that was not at its end", 1),
    "taken": Case("I5", "a cleanup took a directory that had no record", 0),
    "lost name": Case("I2", "an operator accepted unresolved names", 0),
}
"""Checkers and their cases. What is stated is some third of what was measured, rare ones apart."""
