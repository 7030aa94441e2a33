"""The mutants themselves: each still changes what it means, and nobody who survives goes unseen."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants import selection
from tests.mutants.__main__ import TRIED_MIN, told
from tests.mutants.explained import EXPLAINED
from tests.mutants.handwork import HAND_MADE, Hand
from tests.mutants.judge import Verdict
from tests.mutants.loading import is_whole
from tests.mutants.operators import drawn_from
from tests.mutants.source import FOLDERS, GoneError, files, text

ROOT = Path(__file__).resolve().parents[2]
COLLECT_SECONDS = 120

WORDS = Hand("some", "_quantities.py", "age_words", (("seconds >= 2 * size", "True"),), "nothing")


@pytest.mark.parametrize("hand", HAND_MADE, ids=lambda hand: hand.name)
def test_a_hand_made_mutant_still_has_its_place(hand: Hand) -> None:
    """The old text of each hand-made mutant is in the code, and with the new one it is a program
    that differs."""
    mutant = hand.mutant()
    assert is_whole(mutant.tree())
    assert "\n+" in mutant.diff() or "\n-" in mutant.diff()


def test_each_named_killer_is_a_test() -> None:
    """A killer whose test has another name by now, or other parameters, would be passed over, and
    its mutant be tried with all tests, for minutes."""
    known = json.loads((Path(__file__).parent / "killers.json").read_text(encoding="utf-8"))
    named = {entry["test"]: mutant for mutant, entry in known.items() if "test" in entry}
    folders = sorted({test.partition("::")[0] for test in named})
    collecting = ("-m", "pytest", "--collect-only", "-q", "-o", "faulthandler_timeout=0")
    command = [sys.executable, *collecting, *folders]
    collected = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=COLLECT_SECONDS
    )
    assert collected.returncode == 0, collected.stdout[-2000:] + collected.stderr[-2000:]
    assert {test: named[test] for test in set(named) - set(collected.stdout.splitlines())} == {}


@pytest.mark.parametrize(("old", "times"), [("seconds >= 3 * size", 0), ("seconds", 4)])
def test_a_mutant_whose_text_is_gone_or_there_twice_is_told(old: str, times: int) -> None:
    """Its name and the text are told; a text that is there more often is not changed by chance."""
    hand = Hand("some", WORDS.path, WORDS.place, ((old, "0"),), "nothing")
    with pytest.raises(GoneError, match=rf"hand:some: .* age_words holds {times} times: seconds"):
        hand.mutant()


def test_no_two_mutants_have_one_name() -> None:
    """Ids are unique, of the hand-made and of the operators' mutants together."""
    names = [f"hand:{one.name}" for one in HAND_MADE]
    names += [mutant.id for path in files() for mutant in drawn_from(path)]
    assert len(names) == len(set(names))


def test_a_name_stays_when_the_code_around_it_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """The id of an operator's mutant does not depend on what stands before it in its module."""
    path = "commit/closed.py"
    before = {mutant.id for mutant in drawn_from(path)}
    source = ast.unparse(ast.parse(text(path)))
    moved = source.replace("def age_of", "def of_another(a: int) -> bool:\n    return a > 1\n\n"
                           "def age_of")  # fmt: skip
    monkeypatch.setattr("tests.mutants.operators.parsed", lambda _: ast.parse(moved))
    assert before < {mutant.id for mutant in drawn_from(path)}


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_draw_takes_some_of_every_folder(folder: str) -> None:
    """Mutants are drawn of each folder, and every one is a program that differs."""
    drawn = [m for m in selection.whole() if not m.by_hand and m.path.startswith(f"{folder}/")]
    assert len(drawn) >= 20
    for mutant in drawn[:20]:
        assert is_whole(mutant.tree())


def test_there_are_enough() -> None:
    """The whole has at least 120 mutants, and the sample at least 40."""
    mutants = selection.whole()
    assert len(mutants) >= 120
    assert len(selection.sample(mutants, set(EXPLAINED), set())) >= TRIED_MIN


def test_the_sample_prefers_what_has_a_known_killer() -> None:
    """Of the drawn mutants CI tries those first whose killers are known."""
    mutants = selection.whole()
    known = {mutant.id for mutant in mutants if not mutant.by_hand and "maintenance" in mutant.path}
    drawn = [m.id for m in selection.sample(mutants, set(), known) if not m.by_hand]
    assert len(drawn) == selection.SAMPLE
    assert set(drawn) <= known


def test_what_is_explained_exists_and_says_why() -> None:
    """Every explanation is of a mutant that the whole tries, and has a reason."""
    names = {mutant.id for mutant in selection.whole()}
    assert sorted(set(EXPLAINED) - names) == []
    assert [name for name, why in EXPLAINED.items() if len(why) < 20] == []


@pytest.mark.parametrize(
    ("by", "broken", "explained", "wrong", "says"),
    [
        ("", "", False, 1, "survived, and not explained: hand:some"),
        ("", "", False, 1, "-        if seconds >= 2 * size:\n+        if True:"),
        ("", "", True, 0, "1 survived, 1 of them explained"),
        ("x.py::y", "", False, 0, "1 killed, 0 survived"),
        ("x.py::y", "", True, 1, "explained, and killed by x.py::y: hand:some"),
        ("", "pytest ended with 3", False, 1, "no verdict: hand:some: pytest ended with 3"),
    ],
)
def test_what_is_wrong_with_a_verdict_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], by: str, broken: str,
    explained: bool, wrong: int, says: str,
) -> None:  # fmt: skip
    """A survivor that nobody explains is wrong, and its change is printed; so are an explanation of
    what is killed, and a mutant for which the suite itself failed."""
    if explained:
        monkeypatch.setitem(EXPLAINED, "hand:some", "because")
    mutant = WORDS.mutant()
    assert told([mutant], [Verdict(mutant, by, {}, 1, 0.1, broken)], gone=()) == wrong
    assert says in capsys.readouterr().out


def test_what_is_gone_is_wrong_and_what_was_not_tried_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An explanation of a mutant that is not tried any more is wrong; too little time for all is
    fine, where enough were tried."""
    assert told([], [], gone=["hand:other"]) == 1
    assert "explained, and gone or not drawn: hand:other" in capsys.readouterr().out
    mutant = WORDS.mutant()
    verdicts = [Verdict(mutant, "tests/x.py::y", {}, 1, 0.1)] * TRIED_MIN
    assert told([mutant] * (TRIED_MIN + 2), verdicts, gone=()) == 0
    assert "not tried, for want of time: 2" in capsys.readouterr().out
