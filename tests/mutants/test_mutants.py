"""The mutants themselves: each still changes what it means, and nobody who survives goes unseen."""

from __future__ import annotations

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
from tests.mutants.operators import drawn_from
from tests.mutants.source import FOLDERS, ROOT, GoneError, files

COLLECT_SECONDS = 300
WORDS = Hand(
    "some", "errors/messages.py", "age_words", (("seconds >= 2 * size", "True"),), "nothing"
)


@pytest.mark.parametrize("hand", HAND_MADE, ids=lambda hand: hand.name)
def test_a_hand_made_mutant_still_has_its_place(hand: Hand) -> None:
    """The old text of each hand-made mutant is in the code, and with the new one it is a program
    that differs."""
    mutant = hand.mutant()
    assert mutant.is_program()
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
    gone = {test: named[test] for test in set(named) - set(collected.stdout.splitlines())}
    assert gone == {}, "write the new names into tests/mutants/killers.json"


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


def test_enough_are_drawn_of_every_folder_and_explained_ones_are_there() -> None:
    """Of each folder at least 20 mutants, which are programs; the sample has at least 40; and each
    that is explained is among them, with a reason."""
    mutants = selection.whole()
    for folder in FOLDERS:
        drawn = [m for m in mutants if not m.by_hand and m.path.startswith(f"{folder}/")]
        assert len(drawn) >= 20
        assert all(mutant.is_program() for mutant in drawn[:20])
    known = {mutant.id for mutant in mutants if not mutant.by_hand and "maintenance" in mutant.path}
    sample = selection.sample(mutants, known)
    assert len(sample) >= TRIED_MIN
    assert {mutant.id for mutant in sample if not mutant.by_hand} <= known
    assert sorted(set(EXPLAINED) - {mutant.id for mutant in mutants}) == []
    assert [name for name, why in EXPLAINED.items() if len(why) < 20] == []


@pytest.mark.parametrize(
    ("by", "broken", "wrong", "says"),
    [
        ("", "", 1, "-        if seconds >= 2 * size:\n+        if True:"),
        ("x.py::y", "", 0, "1 killed, 0 survived"),
        ("", "pytest ended with 3", 1, "no verdict: hand:some: pytest ended with 3"),
    ],
)
def test_what_is_wrong_with_a_verdict_is_told(
    capsys: pytest.CaptureFixture[str], by: str, broken: str, wrong: int, says: str
) -> None:
    """A survivor that nobody explains is wrong, and its change is printed; so is a mutant for which
    the suite itself failed."""
    mutant = WORDS.mutant()
    assert told([mutant], [Verdict(mutant, by, {}, 0.1, broken)]) == wrong
    assert says in capsys.readouterr().out


def test_the_suite_kills_a_mutant_and_touches_no_file() -> None:
    """A whole run on one mutant names the test that killed it, and no source file has changed."""
    before = {file: file.stat().st_mtime_ns for file in (ROOT / "magic_committer").rglob("*.py")}
    ran = subprocess.run(
        [sys.executable, "-m", "tests.mutants", "--only", "hand:any marker may be replaced"],
        cwd=ROOT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 mutants (1 by hand): 1 killed, 0 survived" in ran.stdout
    assert {file: file.stat().st_mtime_ns for file in before} == before
