"""What an error says to do can be done: each remedy is run as it is worded."""

from __future__ import annotations

import pickle
import re
from typing import get_args

import pytest

import magic_committer as mc
from magic_committer.errors.messages import Call, in_python
from magic_committer.stores.memory import MemoryStore
from magic_committer.testing import PatientClock, memory_store
from tests.promises.hands import job_of, raises, refusing
from tests.promises.machine import Machine
from tests.promises.situations import SITUATIONS, Situation, contents, shows

EACH = [
    pytest.param(situation, number, id=f"{name}-{number}")
    for name, situation in SITUATIONS.items()
    for number in range(len(situation.ends))
]


def raised(situation: Situation, machine: Machine) -> mc.MagicError:
    """The error of a situation, on the machine's store."""
    step = situation.make(machine)
    caught = raises(mc.MagicError, step)
    if not situation.stays_broken:
        machine.s3.before = None
    machine.later(situation.later)
    return caught


def pasted(text: str, error: BaseException) -> None:
    """Somebody pastes the text into Python, where the error is at hand."""
    exec(text, {"magic_committer": mc, "error": error})


@pytest.mark.parametrize("situation", SITUATIONS.values(), ids=list(SITUATIONS))
def test_an_error_is_one_line_with_its_remedies(machine: Machine, situation: Situation) -> None:
    """``str(error)`` is message, advice and calls, in a line of a log; also of a pickled error."""
    error = raised(situation, machine)
    assert len(error.remedies) == len(situation.ends), error
    assert "\n" not in str(error)
    assert str(error) == f"{error.message}. {error.hint}"
    for remedy in error.remedies:
        assert f": {in_python(remedy)}" in error.hint
    back = pickle.loads(pickle.dumps(error))
    assert (str(back), back.remedies) == (str(error), error.remedies)


@pytest.mark.parametrize(("situation", "number"), EACH)
def test_each_call_that_an_error_names_does_what_it_says(
    machine: Machine, situation: Situation, number: int
) -> None:
    """The text is pasted into Python, and the store is what the remedy promises."""
    error = raised(situation, machine)
    before = contents(machine.s3)
    remedy = error.remedies[number]
    text = in_python(remedy)
    if situation.stays_broken and not remedy.options:
        raises(type(error), pasted, text, error)
    else:
        pasted(text, error)
    situation.ends[number](machine.s3, before)


def test_the_data_is_the_call(machine: Machine) -> None:
    """A program that acts on an error needs no text: name and arguments are the function's."""
    error = raised(SITUATIONS["lost"], machine)
    assert isinstance(error, mc.CommitIncomplete)
    accept, undo = error.remedies
    assert accept.options == {"accept": error.unresolved}
    getattr(mc, undo.call)(undo.dest, undo.job_id, **undo.options)
    shows()(machine.s3, None)


@pytest.mark.parametrize(
    ("request_of", "seen"),
    [("list", ()), ("complete_upload t/1.csv", ("t/1.csv",))],
    ids=["before the decision", "after it"],
)
def test_the_call_in_a_note_at_ctrl_c_can_be_pasted(
    s3: MemoryStore, request_of: str, seen: tuple[str, ...]
) -> None:
    """An interrupted commit says what is known, and the call in it ends the job."""
    job = job_of({"1.csv": b"1"})
    with refusing(s3, request_of, KeyboardInterrupt), pytest.raises(KeyboardInterrupt) as interrupt:
        job.commit()
    (note,) = interrupt.value.__notes__
    (call,) = re.findall(r": (magic_committer\..*)$", note)
    pasted(call, interrupt.value)
    shows(*seen)(s3, None)


def test_every_kind_of_remedy_is_among_the_situations() -> None:
    """No call that an error can name is left unrun. A report alone names the lifecycle."""
    called: set[str] = set()
    for situation in SITUATIONS.values():
        clock = PatientClock()
        with memory_store(clock=clock) as s3:
            called |= {one.call for one in raised(situation, Machine(s3, clock)).remedies}
            s3.before = None
    assert called | {"lifecycle"} == set(get_args(Call))
