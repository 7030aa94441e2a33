"""Works of many requests: the same for each work, and no abort on an old look."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, nullcontext
from typing import Any

import pytest

from magic_committer.commit.requests import LOOK_SECONDS_MAX, Ahead, Pause, Steps, each
from magic_committer.commit.uploads import (
    Removal,
    Removed,
    UploadName,
    UploadRemover,
    UploadState,
    to_look,
)
from magic_committer.errors import NotFound, PermissionDenied, StoreError, Unanswered
from magic_committer.protocol.record import TOKEN_METADATA
from magic_committer.runtime.components import Runtime
from magic_committer.runtime.threads import ThreadPool, errand
from magic_committer.stores.base import (
    AbortUpload,
    Answer,
    Ask,
    Attributes,
    Head,
    ListParts,
    Written,
)
from magic_committer.stores.memory import MemoryStore
from magic_committer.testing import PatientClock
from tests.at_once import AtOnce

NO_ANSWER = Unanswered("no answer")
SLOW_DOWN = Unanswered("slow down", status=503, code="SlowDown")
GONE = NotFound("gone", status=404, code="NoSuchUpload")
Lies = dict[tuple[type[Ask], str], Answer]
"""What a store answers the first time in place of the truth, by the ask and the key."""


class Lying(AtOnce):
    """Lies as told, once each.

    Attributes:
        takes: whether a request that is answered by a lie takes effect all the same.
        hears: what is told of each request before it takes effect.
    """

    def __init__(self, clock: PatientClock) -> None:
        super().__init__(clock=clock.now, forgetful_complete=True)
        self.lies: Lies = {}
        self.takes = False
        self.hears: Callable[[Ask], object] = lambda ask: None

    def answer(self, ask: Ask) -> Answer:
        """What its verb answers, or what was told."""
        self.hears(ask)
        told = self.lies.pop((type(ask), ask.key), None)
        if told is not None and not self.takes:
            return told
        answer = super().answer(ask)
        return told or answer


class World:
    def __init__(self, files: int, **lies: Answer) -> None:
        """``lies``: about the second upload, by ``abort``, ``parts`` and ``head``."""
        kinds: dict[str, type[Ask]] = {"abort": AbortUpload, "parts": ListParts, "head": Head}
        self.clock = PatientClock()
        self.store = Lying(self.clock)
        self.store.lies = {(kinds[name], "t/1.csv"): answer for name, answer in lies.items()}
        self.runtime = Runtime(self.store, clock=self.clock)
        self.uploads = [self._upload(number) for number in range(files)]

    def _upload(self, number: int) -> UploadName:
        key, token = f"t/{number}.csv", f"job.attempt.{number}"
        attributes = Attributes(metadata={TOKEN_METADATA: token})
        made = self.store.create_upload(key, attributes=attributes)
        self.store.put_part(key, made.upload_id, 1, memoryview(b"abc"))
        return UploadName(key, made.upload_id, token)

    def complete(self, number: int) -> None:
        upload = self.uploads[number]
        parts = self.store.list_parts(upload.key, upload.upload_id)
        self.store.complete_upload(upload.key, upload.upload_id, parts)

    def each(
        self, *, look_first: bool = True, in_flight: int = 4
    ) -> Generator[tuple[UploadName, Removed], None, None]:
        remover = UploadRemover(self.runtime, look_first=look_first)
        works = ((upload, remover.to_remove(upload)) for upload in self.uploads)
        return each(self.runtime, works, in_flight=in_flight)

    def run(self, **how: Any) -> dict[str, Removed]:
        with closing(self.each(**how)) as ended:
            return {upload.key: removed for upload, removed in ended}

    def kinds(self, key: str) -> list[str]:
        return [kind for kind, asked in self.store.asked if asked == key]


@pytest.mark.parametrize("look_first", [True, False])
def test_each_upload_is_aborted_and_proved_gone_in_order(
    look_first: bool,
) -> None:
    """Many at once are asked what one is asked, and never more at once than allowed."""
    world = World(10)
    told = world.run(look_first=look_first)
    assert {one.removal for one in told.values()} == {Removal.ABORTED}
    assert len(told) == 10
    assert not world.store.open_uploads()
    proved = ["AbortUpload", "ListParts"]
    wanted = ["Head", "ListParts", *proved, "Head"] if look_first else proved
    assert [world.kinds(upload.key) for upload in world.uploads] == [wanted] * 10
    assert world.store.most == 4


ODD: dict[str, StoreError] = {
    "403": PermissionDenied("not allowed", status=403, code="AccessDenied"),
    "an empty 404": NotFound("?", status=404),
    "no key": NotFound("no key", status=404, code="NoSuchKey"),
}


@pytest.mark.parametrize("answer", ODD)
def test_only_an_exact_answer_proves_at_once_that_an_upload_is_gone(answer: str) -> None:
    """Every other one is asked for once more: here the parts are seen, and it is aborted again."""
    world = World(3, parts=ODD[answer], abort=Written(""))
    told = world.run(look_first=False)
    assert told["t/1.csv"].removal is Removal.ABORTED
    assert world.kinds("t/1.csv") == [
        "AbortUpload", "ListParts", "ListParts", "AbortUpload", "ListParts",
    ]  # fmt: skip
    assert not world.store.open_uploads()


@pytest.mark.parametrize("error", [NO_ANSWER, SLOW_DOWN])
@pytest.mark.parametrize("takes", [True, False])
def test_who_looked_before_an_abort_that_failed_looks_again(error: StoreError, takes: bool) -> None:
    """If the abort took effect, the upload counts as aborted; if not, it is aborted now."""
    world = World(3, abort=error)
    world.store.takes = takes
    assert world.run()["t/1.csv"] == Removed(Removal.ABORTED)
    asked = world.kinds("t/1.csv")
    assert asked[: asked.index("AbortUpload") + 3][-2:] == ["Head", "ListParts"]
    assert asked.count("AbortUpload") == (1 if takes else 2)
    assert not world.store.open_uploads()


def test_what_is_completed_after_an_abort_that_failed_is_not_aborted() -> None:
    """On some stores the abort would cost the object: the second look sees it."""
    world = World(8, abort=NO_ANSWER)
    ended = world.each()
    assert next(ended)[0].key == "t/0.csv"
    world.complete(1)
    told = {one.key: removed.removal for one, removed in ended}
    assert told["t/1.csv"] is Removal.VISIBLE
    assert world.store.body("t/1.csv") == b"abc"


def test_an_abort_that_was_never_sent_aborted_nothing() -> None:
    """Another program ends the upload after the look: who could not send an abort does not say that
    he has aborted it. An abort that follows a look is sent once, also by a store that tries again
    by itself; others are not."""
    world = World(3, abort=Unanswered("no connection", sent=False))
    once: list[bool] = []

    def before(ask: Ask) -> None:
        if isinstance(ask, AbortUpload):
            once.append(ask.once)
            if ask.key == "t/1.csv":
                world.store.drop_upload(ask.upload_id)

    world.store.hears = before
    told = {key: removed.removal for key, removed in world.run().items()}
    assert told.pop("t/1.csv") is Removal.GONE
    assert set(told.values()) == {Removal.ABORTED}
    assert set(once) == {True}
    once.clear()
    world.uploads = [world._upload(9)]
    world.run(look_first=False)
    assert once == [False]


def test_no_abort_is_sent_on_an_old_look() -> None:
    """After a long pause of the caller all look again, and what was completed stays."""
    world = World(6)
    ended = world.each(in_flight=6)
    seen = {}
    for upload, removed in ended:
        seen[upload.key] = removed.removal
        if len(seen) == 1:
            late = [one.key for one in world.uploads if "AbortUpload" not in world.kinds(one.key)]
            for key in late:
                world.complete(int(key[2]))
            world.clock.sleep(LOOK_SECONDS_MAX + 1)
    assert all(seen[key] is Removal.VISIBLE for key in late)


def test_a_paused_work_begins_anew_if_its_look_is_old() -> None:
    """Between a look and its abort there is a wait that was too long."""
    clock = PatientClock()
    store = Lying(clock)
    upload = store.create_upload("t/a", attributes=Attributes()).upload_id
    begun: list[bool] = []

    def start(aborts: bool) -> Steps[str]:
        begun.append(aborts)
        yield ListParts("t/a", upload)
        if len(begun) == 1:
            yield Pause(LOOK_SECONDS_MAX + 1)
        yield AbortUpload("t/a", upload)
        return "aborted"

    works = iter([("a", start)])
    assert list(each(Runtime(store, clock=clock), works, in_flight=2)) == [("a", "aborted")]
    assert begun == [False, False]
    assert store.asked == [("ListParts", "t/a"), ("ListParts", "t/a"), ("AbortUpload", "t/a")]


def test_who_leaves_early_begins_nothing_new() -> None:
    """Nothing is taken behind a close, and the source is not asked any more."""
    world = World(20)
    ended = world.each(in_flight=3)
    next(ended)
    asked = len(world.store.asked)
    ended.close()
    assert len(world.store.asked) == asked


@pytest.mark.parametrize("of", ["the source", "a work"])
def test_an_error_of_the_works_comes_when_those_before_have_ended(of: str) -> None:
    """Their results are given first; what a work raises is no answer of the store's."""
    world = World(5)

    def raises(_: bool) -> Steps[Any]:
        yield Head("t/nothing.csv")

    def works() -> Iterator[tuple[Any, Any]]:
        for upload in world.uploads:
            yield upload, to_look(world.runtime, upload)
        if of == "a work":
            yield None, raises
        raise ValueError("a listing broke")

    seen = []
    with pytest.raises(ValueError if of == "the source" else NotFound):
        for upload, look in each(world.runtime, works(), in_flight=3 if of == "the source" else 1):
            assert look.state is UploadState.OPEN
            seen.append(upload.key)
    assert sorted(seen) == [upload.key for upload in world.uploads]


SECONDS = 300.0


class Pages:
    """Numbered pages that say when they are asked for."""

    def __init__(self, many: int, error: StoreError | None = None) -> None:
        self.asked = threading.Semaphore(0)
        self.number = 0
        self.most = 0
        """How many were asked for before the caller had taken them."""
        self.taken = 0
        self._many = many
        self._error = error

    def __iter__(self) -> Iterator[int]:
        for number in range(self._many):
            self.number += 1
            self.most = max(self.most, self.number - self.taken)
            self.asked.release()
            yield number
        if self._error is not None:
            raise self._error


@pytest.fixture
def runtime() -> Generator[Runtime, None, None]:
    pool = ThreadPool(4)
    yield Runtime(MemoryStore(), pool=pool)
    pool.close()


@pytest.mark.parametrize("many", [0, 1, 2, 7])
@pytest.mark.parametrize("threads", [0, 4])
@pytest.mark.parametrize("error", [None, PermissionDenied("not allowed")])
def test_all_pages_come_in_order_and_once(
    many: int, threads: int, error: StoreError | None
) -> None:
    """As without asking ahead; a page that cannot be had hides none of those before it."""
    pages, told = Pages(many, error), list[int]()
    with (
        closing(ThreadPool(threads)) as pool,
        Ahead(Runtime(MemoryStore(), pool=pool), pages.__iter__) as coming,
        pytest.raises(PermissionDenied) if error else nullcontext(),
    ):
        told.extend(coming)
    assert told == list(range(many))


def test_the_next_page_is_asked_for_while_the_caller_works(runtime: Runtime) -> None:
    """Before the caller takes it; and never more than one."""
    pages = Pages(6)
    with Ahead(runtime, pages.__iter__) as coming:
        for number in coming:
            pages.taken = number + 1
            assert pages.asked.acquire(timeout=SECONDS)
            if number < 5:  # this one, and the next one
                assert pages.asked.acquire(timeout=SECONDS)
                pages.asked.release()
    assert pages.most <= 2


def test_a_caller_who_stops_gives_up_the_page_under_way(runtime: Runtime) -> None:
    """The request that was sent ahead is told to end, its error is nobody's, and it is the last."""
    under_way, ended = threading.Event(), threading.Event()
    asked = 0

    def pages() -> Iterator[int]:
        nonlocal asked
        asked += 1
        yield 0
        asked += 1
        under_way.set()
        mine = errand()
        while mine is None or not mine.over:
            assert not ended.wait(0.01)
        raise PermissionDenied("given up")

    with Ahead(runtime, pages) as coming:
        assert next(iter(coming)) == 0
        assert under_way.wait(SECONDS)
    assert asked == 2


def test_pages_are_asked_for_before_the_caller_takes_the_first(runtime: Runtime) -> None:
    """As many as may wait, and no more."""
    pages = Pages(9)
    with Ahead(runtime, pages.__iter__, pages_max=3) as coming:
        for _ in range(3):
            assert pages.asked.acquire(timeout=SECONDS)
        assert pages.number == 3
        assert list(coming) == list(range(9))
