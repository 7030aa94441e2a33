"""``uploads abort`` by many requests at once and by single verbs: the same answers by both, and no
abort on an old look by either."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import pytest

from magic_committer import _wiring
from magic_committer._runtime import Progress, no_progress
from magic_committer._wiring import register_store, unregister_store
from magic_committer.commit.steps import LOOK_SECONDS_MAX
from magic_committer.errors import PermissionDenied, Unanswered
from magic_committer.hadoop.paths import Destination, unique_name
from magic_committer.maintenance.abort_uploads import Clearing, OpenUploads
from magic_committer.maintenance.uploads import Filters
from magic_committer.options import Options, S3Options
from magic_committer.stores.base import Part, UploadPage
from magic_committer.stores.memory import Request
from magic_committer.testing import PatientClock
from tests.at_once import AtOnce
from tests.costly import CostlyStore

GONE = "0" * 32
"""The UUID of a job that has no record."""
DAY = 86_400.0


class Store(CostlyStore, AtOnce):
    """A store that takes many requests from one thread, or not, on which the abort of a completed
    upload costs its object.

    Attributes:
        unseen: keys: the listing of exactly that key does not show their uploads any more.
        touched: the same, for uploads that it says to have begun just now.
        seen: every request that was answered, by key: the verb and the time.
    """

    def __init__(self, clock: PatientClock, *, at_once: bool) -> None:
        super().__init__(clock)
        self.at_once = at_once
        self.unseen: set[str] = set()
        self.touched: set[str] = set()
        self.seen: defaultdict[str, list[tuple[str, float]]] = defaultdict(list)

    def many(self) -> Any:
        """As the port's."""
        return self if self.at_once else None

    def list_uploads(self, prefix: str) -> Iterator[UploadPage]:
        """As the port's."""
        for page in super().list_uploads(prefix):
            shown = [one for one in page.uploads if prefix not in self.unseen]
            if prefix in self.touched:
                shown = [replace(one, initiated=page.seen_at) for one in shown]
            yield replace(page, uploads=tuple(shown))


@contextmanager
def bucket(*, at_once: bool) -> Iterator[tuple[Store, PatientClock]]:
    """The bucket ``bucket``, and its clock."""
    clock = PatientClock()
    store = Store(clock, at_once=at_once)
    register_store(store, clock)
    try:
        yield store, clock
    finally:
        store.before = store.after = None
        unregister_store(store)


def orphans(store: Store, count: int) -> dict[str, str]:
    """Uploads with a part each, of a job without a record: their keys and ids."""
    made = {}
    for number in range(count):
        key = f"t/{unique_name(f'{number:03}.csv', GONE)}"
        made[key] = store.start_upload(key)
        store.put_part(key, made[key], 1, memoryview(b"x"))
    return made


def planned(progress: Callable[[Progress], None] = no_progress) -> Clearing:
    """A run, as it is told to the operator before it begins."""
    runtime = _wiring.runtime_for("bucket", S3Options(), progress)
    dest, options = Destination("bucket", "t/"), Options(commit_threads=4)
    found = OpenUploads(runtime, dest, Filters(DAY / 2), sizes=False, options=options)
    return Clearing(found)


@pytest.mark.parametrize("at_once", [False, True])
def test_every_answer_is_the_same_by_verbs_and_at_once(at_once: bool) -> None:
    """Of forty uploads some have ended, were completed, have changed, may not be aborted, may not
    be listed, or lost the answer to their abort: each that the run still lists is told for what it
    is, and the progress counts each once."""
    noted: list[Progress] = []
    with bucket(at_once=at_once) as (store, clock):
        uploads = orphans(store, 40)
        keys = list(uploads)
        clock.ahead += DAY
        plan = planned(noted.append)
        store.drop_upload(uploads[keys[3]])
        part = store.list_parts(keys[7], uploads[keys[7]])[0]
        store.complete_upload(keys[7], uploads[keys[7]], [Part(1, part.etag, 1)])
        store.touched, store.unseen, store.lags = {keys[11]}, {keys[13]}, True
        lost: list[str] = []

        def refuse(request: Request) -> None:
            if (request.verb, request.key) == ("abort_upload", keys[17]):
                raise PermissionDenied("no abort", status=403, code="AccessDenied")
            if (request.verb, request.key) == ("list_uploads", keys[19]):
                raise PermissionDenied("no listing", status=403, code="AccessDenied")

        def lose(request: Request, answer: object) -> None:
            if (request.verb, request.key) == ("abort_upload", keys[23]) and not lost:
                lost.append(request.key)
                raise Unanswered("the connection was reset")

        store.before, store.after = refuse, lose
        noted.clear()
        told = {one.found.key: (one.action, one.why) for one in plan.run()}
        store.before = store.after = None
        still_open = {one.key for one in store.open_uploads()}
        objects, costs = store.keys("t/"), store.lost
    odd = {
        keys[7]: ("gone", "a listing shows it, and its parts are gone"),
        keys[11]: ("left", "it is younger than 12 h by now"),
        keys[13]: ("left", "no listing shows it, but its parts are there"),
        keys[17]: ("left", "no abort"),
        keys[19]: ("left", "no listing"),
    }
    assert told == {key: odd.get(key, ("aborted", "")) for key in keys if key != keys[3]}
    assert still_open == {keys[11], keys[13], keys[17], keys[19]}
    assert (objects, costs) == ((keys[7],), [])
    assert [one.done for one in noted if one.phase == "abort"] == list(range(1, 40))


@pytest.mark.parametrize("at_once", [False, True])
def test_what_is_completed_while_the_caller_pauses_is_not_aborted(at_once: bool) -> None:
    """Each abort follows from a look that is younger than two seconds, also where whoever prints
    the rows takes longer: what was completed meanwhile is told as gone, and its object stays."""
    with bucket(at_once=at_once) as (store, clock):
        uploads = orphans(store, 40)
        clock.ahead += DAY
        plan = planned()

        def note(request: Request, answer: object) -> None:
            store.seen[request.key].append((request.verb, clock.now()))

        store.after = note
        told = {}
        with closing(plan.run()) as cleared:  # type: ignore[type-var]  # a generator
            for one in cleared:
                told[one.found.key] = one.action
                if len(told) > 1:
                    continue
                others = {up.key: up.upload_id for up in store.open_uploads()}
                store.after = None
                for key, upload_id in others.items():
                    parts = store.list_parts(key, upload_id)
                    store.complete_upload(key, upload_id, parts)
                store.after = note
                clock.ahead += LOOK_SECONDS_MAX + 1
    assert len(told) == len(uploads)
    assert len(others) > 30
    assert {told[key] for key in others} == {"gone"}
    assert (store.lost, set(store.keys("t/"))) == ([], set(others))


@pytest.mark.parametrize("at_once", [False, True])
def test_each_abort_has_its_own_look_right_before_it(at_once: bool) -> None:
    """Of each upload the listing of its key is asked for, then its parts, then it is aborted, then
    its parts are asked for again: at once as by verbs."""
    with bucket(at_once=at_once) as (store, clock):
        uploads = orphans(store, 12)
        clock.ahead += DAY
        plan = planned()
        store.after = lambda request, answer: store.seen[request.key].append(
            (request.verb, clock.now())
        )
        assert {one.action for one in plan.run()} == {"aborted"}
        store.after = None
        for key in uploads:
            verbs = [verb for verb, _ in store.seen[key]]
            assert verbs == ["list_uploads", "list_parts", "abort_upload", "list_parts"]
