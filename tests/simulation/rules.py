"""The protocol's rules, each with a way to take it away: changes of production's text (rules.txt).

A rule is worth its price if a promise breaks without it: `bite` runs schedules with one rule
removed until that happens. Rules that these schedules cannot show are told with the reason; most of
them the search shows (tests/model), which takes away many of the others, too. Many rules hold
because somebody looks once more, at the right moment, at the right thing: at others' plans, at the
data, at an upload, at what an unanswered request has come to. Most are seen once more where an
upload is a file that waits on a file system (`EVERYWHERE`).
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import groupby
from pathlib import Path
from types import CodeType
from typing import Any

from tests.mutants.handwork import Hand
from tests.mutants.source import functions
from tests.simulation.drawing import EVERYTHING, Focus
from tests.simulation.promises import Violation
from tests.simulation.tally import quietly


@dataclass
class Change:
    """What is changed in a function. ``edits``: old text and new text. ``body``: a whole new one;
    ``before``: what comes before it."""

    path: str
    place: str
    edits: list[tuple[str, str]]
    body: str = ""
    before: str = ""

    def function(self) -> Any:
        """The function as it is imported."""
        module = self.path.removesuffix(".py").replace("/", ".")
        found: Any = import_module(f"magic_committer.{module}")
        for name in self.place.split("."):
            found = inspect.getattr_static(found, name)
        function: Any = found.fget if isinstance(found, property) else found
        return inspect.unwrap(function)

    def code(self) -> CodeType:
        """The function's code with the change. Raises `GoneError`: the old text is not there."""
        hand = Hand(self.place, self.path, self.place, tuple(self.edits), "")
        tree = hand.mutant().tree()
        node: Any = next(node for name, node in functions(tree) if name == self.place)
        body = ast.parse(self.body).body if self.body else node.body
        node.body = [*ast.parse(self.before).body, *body]
        code = compile(ast.fix_missing_locations(tree), self.path, "exec", dont_inherit=True)
        for name in self.place.split("."):
            inner = (one for one in code.co_consts if isinstance(one, CodeType))
            code = next(one for one in inner if one.co_name == name)
        return code


@dataclass(frozen=True)
class Rule:
    """One rule. ``words``: as protocol.md says it. promises: one of them breaks, at the seed
    ``known``, or within ``seeds_max``. ``focus``: what the schedules go for. ``on_trees``: jobs of
    renames show it too."""

    name: str
    words: str
    promises: tuple[str, ...]
    known: int
    seeds_max: int
    on_trees: bool
    focus: Focus
    changes: tuple[Change, ...]
    searched: str = ""
    """Where the search of tests/model misses it: configuration, faults, promise."""

    @contextmanager
    def removed(self) -> Iterator[None]:
        """The library without the rule."""
        with ExitStack() as stack:
            for change in self.changes:
                function = change.function()
                stack.callback(setattr, function, "__code__", function.__code__)
                function.__code__ = change.code()
            yield


UNSEEN = "not seen here: "


def _read(text: str) -> Iterator[Rule]:
    for paragraph in text.strip().split("\n\n")[2:]:  # behind the file's own head
        first, *lines = paragraph.split("\n")
        at = next((n for n, line in enumerate(lines) if line.startswith("? ")), len(lines))
        searched = lines.pop(at)[2:] if at < len(lines) else ""
        if first.startswith(UNSEEN):
            name, why = first.removeprefix(UNSEEN), " ".join(lines[:at])
            changes = tuple(_changes(lines[at:]))
            yield Rule(name, why, (), 0, 0, False, EVERYTHING, changes, searched)
            continue
        name, _, words = first.partition(": ")
        promises, seeds, *focus = lines[0].split(" | ")
        count, _, trees = seeds.partition(",")
        known, seeds_max = map(int, count.split(" of "))
        yield Rule(
            name, words, tuple(promises.split()), known - 1, seeds_max, bool(trees),
            _focus(focus[0]) if focus else EVERYTHING, tuple(_changes(lines[1:])), searched,
        )  # fmt: skip


def _focus(text: str) -> Focus:
    given: dict[str, Any] = {}
    for name, _, value in (part.partition("=") for part in text.split("; ")):
        lists = name in ("modes", "others", "deeds")
        given[name] = tuple(value.split(",")) if lists else value
    return Focus(**given)


def _changes(lines: list[str]) -> Iterator[Change]:
    change, old = Change("", "", []), ""
    for mark, group in groupby(lines, lambda line: line[0] if line[1:2] == " " else ""):
        words = "\n".join(line[2:] if mark else line for line in group)
        if not mark:
            path, place = words.split(": ")
            change = Change(path, place, [])
            yield change  # what follows is entered before the next one
        elif mark == "-":
            old = words
        elif mark == "^":
            change.before = words
        elif old:
            change.edits.append((old, words))
            old = ""
        else:
            change.body = words


ALL = tuple(_read(Path(__file__).with_name("rules.txt").read_text(encoding="utf-8")))
"""Those of the schedules, and those of the search alone: of these ``words`` are the reason."""
RULES = tuple(rule for rule in ALL if rule.seeds_max)
NOT_SEEN_HERE = {rule.name: rule.words for rule in ALL if not rule.seeds_max}
"""Those that these schedules do not show, with the reason."""
EVERYWHERE = (
    *RULES,
    *(
        replace(rule, name=f"{rule.name}, on a tree", focus=replace(rule.focus, tree="renames"))
        for rule in RULES
        if rule.on_trees
    ),
)
"""Those of the table: rules of the protocol that jobs of renames show are tried there, too."""


# Taking them away ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bite:
    """How a removed rule was caught: at which seed, by which broken promise. ``clean``: that seed
    breaks nothing when the rule is in place."""

    rule: str
    seed: int | None
    violation: Violation | None
    clean: bool


def bite(name: str, known_only: bool = False) -> Bite:
    """Remove one rule and look for a seed that shows it: first the one that is known, then as many
    as the rule allows."""
    rule = next(rule for rule in EVERYWHERE if rule.name == name)
    seed, violation = _caught(rule, range(rule.known, rule.known + 1))
    if seed is None and not known_only:
        seed, violation = _caught(rule, range(rule.seeds_max))
    if seed is None:
        return Bite(name, None, None, clean=True)
    (green,) = quietly(seed, 1, rule.focus)
    return Bite(name, seed, violation, clean=not green.violations)


MISTAKES = ("raised TypeError", "raised Attribute", "raised NameError", "raised Unbound")


def _caught(rule: Rule, seeds: range) -> tuple[int | None, Violation | None]:
    with rule.removed():
        for result in quietly(seeds.start, len(seeds), rule.focus):
            for violation in result.violations:
                if any(words in violation.what for words in MISTAKES):
                    raise AssertionError(f"what stands for {rule.name!r} fails: {violation}")
                if violation.promise in rule.promises:
                    return result.seed, violation
    return None, None


def print_table(processes: int) -> int:
    """Take each rule away; 1 if one is not missed."""
    print(f"{'rule taken away':<38} {'seeds':>7} {'cap':>7}  the promise that breaks")
    failed = 0
    with ProcessPoolExecutor(processes) as pool:
        bites = pool.map(bite, [rule.name for rule in EVERYWHERE])
        for rule, found in zip(EVERYWHERE, bites, strict=True):
            seeds = "-" if found.seed is None else f"{found.seed + 1:,}"
            told = "NOT CAUGHT" if found.seed is None else str(found.violation)
            if not found.clean:
                told += "  (this seed breaks a promise with the rule, too!)"
            failed += found.seed is None or not found.clean
            print(f"{rule.name:<38} {seeds:>7} {rule.seeds_max:>7,}  {told}", flush=True)
    for name, why in NOT_SEEN_HERE.items():
        print(f"{name}: not seen here: {why}")
    return 1 if failed else 0
