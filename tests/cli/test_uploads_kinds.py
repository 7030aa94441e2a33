"""5,000 uploads of eight kinds, classified and cleaned exactly."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from magic_committer.errors import InvalidRequest
from magic_committer.runtime.wiring import register_store, unregister_store
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.testing import PatientClock
from tests.cli.conftest import Command
from tests.eight_kinds import Maker, Told, check_cleaning, check_listing, opened

TOTAL = 5000


class Bucket(Told, MemoryStore):
    """In memory; like a store that does not list the parts of uploads with a customer's key."""


@pytest.fixture
def store(clock: PatientClock) -> Iterator[MemoryStore]:
    made = Bucket(clock=clock.now)

    def refuse(request: Request) -> None:
        if request.verb == "list_parts" and request.key.startswith("table/ssec/"):
            raise InvalidRequest("a key is needed", code="InvalidRequest")

    made.before = refuse
    register_store(made, clock)
    yield made
    unregister_store(made)


def test_each_is_told_and_only_those_go_whose_job_is_over(
    command: Command, store: MemoryStore, clock: PatientClock
) -> None:
    """Each of 5,000 is of its true class; with --older-than 0 also those without an age go."""
    made = Maker(store, threads=0).make(TOTAL)
    clock.ahead += 7200.0  # the live job has just said that it lives
    assert len(made.all()) == TOTAL
    check_listing(command, made)
    check_cleaning(command, store, made)
    everything = ("--older-than", "0", "--hadoop", "--foreign", "--yes", "--format", "json")
    assert command("uploads", "abort", "s3://bucket/table", *everything).code == 0
    assert opened(store) == made.of("live", "neighbour")
