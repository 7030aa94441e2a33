"""Which attempt of a task counts."""

from __future__ import annotations

import random

from magic_committer.commit.sets import LoadedSet
from magic_committer.protocol.record import choose_attempts

UUID = "0" * 32


def loaded(task: str, key: str, last_modified: float, uuid: str = UUID) -> LoadedSet:
    return LoadedSet(
        key=key, etag='"0"', task=task, attempt=key, uuid=uuid,
        last_modified=last_modified, files=0, bytes=0, offset=0, packed_bytes=0,
    )  # fmt: skip


def chosen(*sets: LoadedSet) -> list[str]:
    return [one.key for one in choose_attempts(sets, UUID)]


def test_the_newest_attempt_of_a_task_is_chosen() -> None:
    """Whatever the attempts are called; a tie is broken by the key, not by the listing."""
    assert chosen(loaded("1", "a", 20.0), loaded("1", "b", 10.0)) == ["a"]
    assert chosen(loaded("1", "a", 10.0), loaded("1", "b", 20.0)) == ["b"]
    assert chosen(loaded("1", "a", 10.0), loaded("1", "b", 10.0)) == ["b"]
    assert chosen(loaded("1", "b", 10.0), loaded("1", "a", 10.0)) == ["b"]


def test_another_runs_attempts_never_count() -> None:
    """A newer set of another UUID is passed over, and so is a task that has no other."""
    newer = loaded("1", "z", 99.0, uuid="1" * 32)
    assert chosen(loaded("1", "a", 10.0), newer, loaded("2", "y", 1.0, uuid="")) == ["a"]


def test_the_choice_does_not_depend_on_the_order(chance: random.Random) -> None:
    """Any driver that lists the same sets makes the same choice, in the order of the tasks."""
    sets = [
        loaded(str(chance.randrange(4)), f"k{number}", float(chance.randrange(3)))
        for number in range(20)
    ]
    first = chosen(*sets)
    for _ in range(20):
        chance.shuffle(sets)
        assert chosen(*sets) == first
    assert [one.task for one in choose_attempts(sets, UUID)] == sorted({one.task for one in sets})
