"""Removing and looking at many uploads in batches: which answers are believed, what goes on by
verbs, when a batch takes no more."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from typing import Any

import pytest

from magic_committer._runtime import Runtime
from magic_committer.commit import steps
from magic_committer.commit.steps import (
    FAILED_MAX,
    FAILED_RUN_MAX,
    LOOK_SECONDS_MAX,
    VAIN_MAX,
    by_verbs,
    each,
)
from magic_committer.commit.upload_state import (
    ABORTS_MAX,
    Removal,
    Removed,
    UploadName,
    UploadRemover,
    UploadState,
    to_look,
)
from magic_committer.errors import (
    BucketNotFound,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    StoreError,
    Unanswered,
)
from magic_committer.protocol.record import TOKEN_METADATA
from magic_committer.stores.base import (
    AbortUpload,
    Answer,
    Ask,
    Attributes,
    Head,
    ListParts,
    Part,
    Written,
    ask_by_verb,
)
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.testing import PatientClock

NO_ANSWER = Unanswered("no answer")
SLOW_DOWN = Unanswered("slow down", status=503, code="SlowDown")
GONE = NotFound("gone", status=404, code="NoSuchUpload")
PART = Part(1, '"e"', 1)
Lies = dict[tuple[type[Ask], str], Answer]
"""What a batch answers in place of the store, by the ask and the key."""


class Told:
    """A batch that keeps ``in_flight`` requests under way, and answers by the store's verbs, or as
    told.

    Attributes:
        asked: each ask's type and key, in the order in which they were taken.
        unheard: keys of asks whose answers were never taken.
        takes: whether a request that is answered otherwise takes effect all the same.
    """

    def __init__(self, store: MemoryStore, lies: Lies) -> None:
        self._store = store
        self._lies = lies
        self.asked: list[tuple[str, str]] = []
        self.unheard: list[str] = []
        self.sizes: list[int] = []
        self.takes = False

    def ask_each(
        self, asks: Iterable[tuple[Any, Ask]], *, in_flight: Callable[[], int]
    ) -> Generator[tuple[Any, Answer], None, None]:
        """As the port says."""
        source, under_way, more = iter(asks), list[tuple[Any, Ask]](), True
        try:
            while True:
                self.sizes.append(in_flight())
                while more and len(under_way) < in_flight():
                    one = next(source, None)
                    if one is None:
                        more = False
                        break
                    under_way.append(one)
                    self.asked.append((type(one[1]).__name__, one[1].key))
                if not under_way:
                    return
                item, ask = under_way.pop(0)
                yield item, self._answer(ask)
        finally:
            self.unheard = [ask.key for _, ask in under_way]

    def _answer(self, ask: Ask) -> Answer:
        told = self._lies.get((type(ask), ask.key))
        if told is not None and not self.takes:
            return told
        try:
            answer = ask_by_verb(self._store, ask)
        except StoreError as error:
            answer = error
        return told or answer


class World:
    """Some open uploads, on a store with a batch that answers as told.

    Attributes:
        by_verbs: verb and key of what was asked by the store's verbs, and not by the batch.
    """

    def __init__(self, files: int, monkeypatch: pytest.MonkeyPatch, **lies: Answer) -> None:
        """``lies``: for the second upload, by ``abort``, ``parts`` and ``head``."""
        kinds: dict[str, type[Ask]] = {"abort": AbortUpload, "parts": ListParts, "head": Head}
        told: Lies = {(kinds[name], "t/1.csv"): answer for name, answer in lies.items()}
        clock = PatientClock()
        self.store = MemoryStore(clock=clock.now, forgetful_complete=True)
        self.clock = clock
        self.runtime = Runtime(self.store, clock=clock)
        self.lies = told
        self.batch = Told(self.store, told)
        monkeypatch.setattr(steps, "batch_of", lambda store: self.batch)
        self.uploads = [self._upload(number) for number in range(files)]
        self.by_verbs: list[tuple[str, str]] = []
        monkeypatch.setattr(steps, "by_verbs", self._noting)

    def _upload(self, number: int) -> UploadName:
        key, token = f"t/{number}.csv", f"job.attempt.{number}"
        attributes = Attributes(metadata={TOKEN_METADATA: token})
        made = self.store.create_upload(key, attributes=attributes)
        self.store.put_part(key, made.upload_id, 1, memoryview(b"abc"))
        return UploadName(key, made.upload_id, token)

    def _noting(self, store: MemoryStore, work: Any, ask: Ask | None = None) -> Any:
        def note(request: Request) -> None:
            self.by_verbs.append((request.verb, request.key))

        before, self.store.before = self.store.before, note
        try:
            return by_verbs(store, work, ask)
        finally:
            self.store.before = before

    def complete(self, number: int) -> None:
        """Somebody completes an upload."""
        upload = self.uploads[number]
        parts = self.store.list_parts(upload.key, upload.upload_id)
        self.store.complete_upload(upload.key, upload.upload_id, parts)

    def each(
        self,
        *,
        look_first: bool = True,
        in_flight: int = 4,
        uploads: Iterable[UploadName] | None = None,
    ) -> Generator[tuple[UploadName, Removed], None, None]:
        """Remove them. By verbs in this thread, so that what was sent is noted in its order."""
        remover = UploadRemover(self.runtime, look_first=look_first)
        names = self.uploads if uploads is None else uploads
        works = ((upload, remover.to_remove(upload)) for upload in names)
        return each(self.runtime, works, in_flight=in_flight)

    def run(self, **how: Any) -> dict[str, Removed]:
        """What became of each, by key."""
        with closing(self.each(**how)) as ended:
            return {upload.key: removed for upload, removed in ended}

    def kinds(self, key: str) -> list[str]:
        """What the batch was asked about a key, in order."""
        return [kind for kind, asked in self.batch.asked if asked == key]


@pytest.mark.parametrize("look_first", [True, False])
def test_each_upload_is_aborted_and_proved_gone_by_the_same_requests(
    monkeypatch: pytest.MonkeyPatch, look_first: bool
) -> None:
    """A batch sends for each upload what a remover sends for one, in its order, and nothing goes by
    verbs."""
    world = World(10, monkeypatch)
    told = world.run(look_first=look_first)
    assert {one.removal for one in told.values()} == {Removal.ABORTED}
    assert len(told) == 10
    assert not world.store.open_uploads()
    proved = ["AbortUpload", "ListParts"]
    wanted = ["Head", "ListParts", *proved, "Head"] if look_first else proved
    assert [world.kinds(upload.key) for upload in world.uploads] == [wanted] * 10
    assert world.by_verbs == []


def test_what_was_completed_is_neither_aborted_nor_called_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An upload that is visible is told so after one HEAD, and its object stays."""
    world = World(3, monkeypatch)
    world.complete(1)
    told = world.run()
    assert told["t/1.csv"].removal is Removal.VISIBLE
    assert world.kinds("t/1.csv") == ["Head"]
    assert world.store.body("t/1.csv") == b"abc"


NOT_BELIEVED: dict[str, Answer] = {
    "no answer": NO_ANSWER,
    "slow down": SLOW_DOWN,
    "403": PermissionDenied("not allowed", status=403, code="AccessDenied"),
    "400": InvalidRequest("a customer's key", status=400, code="InvalidRequest"),
    "no bucket": BucketNotFound("no bucket", status=404, code="NoSuchBucket"),
    "an empty 404": NotFound("?", status=404),
    "no key": NotFound("no key", status=404, code="NoSuchKey"),
    "a code without its status": NotFound("?", status=200, code="NoSuchUpload"),
}


@pytest.mark.parametrize("answer", NOT_BELIEVED)
def test_only_an_exact_answer_proves_in_a_batch_that_an_upload_is_gone(
    monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    """Every other answer to the proof is asked for again by the verb: the abort of the batch did
    not take, the verb sees the parts, and the upload is aborted once more."""
    world = World(3, monkeypatch, parts=NOT_BELIEVED[answer], abort=Written(""))
    told = world.run(look_first=False)
    assert told["t/1.csv"].removal is Removal.ABORTED
    assert world.by_verbs == [
        ("list_parts", "t/1.csv"),
        ("abort_upload", "t/1.csv"),
        ("list_parts", "t/1.csv"),
    ]
    assert not world.store.open_uploads()


@pytest.mark.parametrize("answer", [answer for answer in NOT_BELIEVED if answer != "no key"])
def test_only_an_exact_answer_says_in_a_batch_that_no_object_is_there(
    monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    """Every other answer to a HEAD is asked for again: what was completed is seen, and not
    aborted."""
    world = World(3, monkeypatch, head=NOT_BELIEVED[answer])
    world.complete(1)
    assert world.run()["t/1.csv"].removal is Removal.VISIBLE
    assert world.by_verbs == [("head", "t/1.csv")]
    assert world.store.body("t/1.csv") == b"abc"


@pytest.mark.parametrize("answer", NOT_BELIEVED)
def test_an_open_upload_is_called_gone_by_no_other_answer(
    monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    """A look whose ListParts is answered otherwise is asked again, and tells that it is open."""
    world = World(3, monkeypatch, parts=NOT_BELIEVED[answer])
    works = ((one.key, to_look(world.runtime, one)) for one in world.uploads)
    looks = dict(each(world.runtime, works, in_flight=2))
    assert {look.state for look in looks.values()} == {UploadState.OPEN}
    assert world.by_verbs == [("list_parts", "t/1.csv")]


def test_an_abort_that_did_not_take_waits_by_verbs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts that stay after an abort are no reason to let a whole batch wait: the other uploads are
    aborted first, then this one again, after the pauses."""
    world = World(6, monkeypatch, abort=Written(""))
    began = world.clock.monotonic()
    order = [upload.key for upload, _ in world.each(look_first=False)]
    assert order[-1] == "t/1.csv"
    assert [verb for verb, _ in world.by_verbs] == ["list_parts", "abort_upload", "list_parts"]
    assert world.clock.monotonic() > began
    assert not world.store.open_uploads()


def test_an_upload_whose_parts_never_go_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that never takes the abort: so many are sent, and the upload is told as open."""
    world = World(3, monkeypatch)
    monkeypatch.setattr(world.store._bucket, "abort", lambda *_: None)
    told = world.run()
    assert {one.removal for one in told.values()} == {Removal.LEFT}
    assert all("still open" in one.why for one in told.values())
    assert world.store.requests["abort_upload"] == 3 * ABORTS_MAX


@pytest.mark.parametrize("error", [NO_ANSWER, SLOW_DOWN, GONE])
@pytest.mark.parametrize("takes", [True, False])
def test_who_looked_before_an_abort_that_failed_looks_again(
    monkeypatch: pytest.MonkeyPatch, error: StoreError, takes: bool
) -> None:
    """The look is old by then. If the abort took effect, the upload counts as aborted, for it was
    open; if not, it is aborted now."""
    world = World(3, monkeypatch, abort=error)
    world.batch.takes = takes
    told = world.run()
    assert told["t/1.csv"] == Removed(Removal.ABORTED)
    assert [verb for verb, _ in world.by_verbs][:2] == ["head", "list_parts"]
    assert ("abort_upload", "t/1.csv") not in world.by_verbs or not takes
    assert not world.store.open_uploads()


def test_what_is_completed_after_an_abort_that_failed_is_not_aborted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On some stores the abort would cost the object: the second look sees it."""
    world = World(8, monkeypatch, abort=NO_ANSWER)
    ended = world.each()
    upload, _ = next(ended)
    assert upload.key == "t/0.csv"
    world.complete(1)
    told = {one.key: removed.removal for one, removed in ended}
    assert told["t/1.csv"] is Removal.VISIBLE
    assert world.store.body("t/1.csv") == b"abc"


def test_an_abort_that_was_never_sent_aborted_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program ends the upload after the look: who could not send an abort does not say that
    he has aborted it."""
    world = World(3, monkeypatch, abort=Unanswered("no connection", sent=False))
    real = world.batch._answer

    def dropped(ask: Ask) -> Answer:
        if isinstance(ask, AbortUpload) and ask.key == "t/1.csv":
            world.store.drop_upload(ask.upload_id)
        return real(ask)

    monkeypatch.setattr(world.batch, "_answer", dropped)
    told = {key: removed.removal for key, removed in world.run().items()}
    assert told.pop("t/1.csv") is Removal.GONE
    assert set(told.values()) == {Removal.ABORTED}


def test_a_success_that_was_sent_twice_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looked before looks again."""
    world = World(3, monkeypatch, abort=Written("", attempts=2))
    assert world.run()["t/1.csv"].removal is Removal.ABORTED
    assert world.by_verbs[0] == ("head", "t/1.csv")


@pytest.mark.parametrize("abort_refused", [False, True])
def test_a_batch_takes_no_more_after_many_failures_in_a_row(
    monkeypatch: pytest.MonkeyPatch, abort_refused: bool
) -> None:
    """Where not one work ended plainly, the rest goes by verbs: the proof may be forbidden, and a
    batch would double the requests. If one abort is refused too, the last batch ends while another
    work has been aborted and waits for its proof: that one goes by verbs as well."""
    world = World(60, monkeypatch)
    refused = PermissionDenied("not allowed", status=403)
    world.lies.update({(ListParts, upload.key): refused for upload in world.uploads})
    if abort_refused:
        world.lies[AbortUpload, "t/0.csv"] = refused
    told = world.run(look_first=False)
    assert {one.removal for one in told.values()} == {Removal.ABORTED}
    assert len({key for _, key in world.batch.asked}) <= VAIN_MAX * (FAILED_RUN_MAX + 4)
    assert len(told) == 60
    assert not world.store.open_uploads()


def test_a_batch_holds_a_limited_number_of_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failures with successes in between go on by verbs when there are `FAILED_MAX` of them."""
    files = 2 * FAILED_MAX + 40
    world = World(files, monkeypatch)
    world.lies.update({(AbortUpload, f"t/{n}.csv"): NO_ANSWER for n in range(0, files, 2)})
    asked: list[int] = []
    noting = world._noting

    def count(store: MemoryStore, work: Any, ask: Ask | None = None) -> Any:
        asked.append(len({key for _, key in world.batch.asked}))
        return noting(store, work, ask)

    monkeypatch.setattr(steps, "by_verbs", count)
    told = world.run(look_first=False)
    assert {one.removal for one in told.values()} == {Removal.ABORTED}
    assert 2 * FAILED_MAX <= asked[0] <= 2 * FAILED_MAX + 8
    assert len(told) == files


def test_the_store_decides_how_many_are_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a 503 half as many requests are under way; a 404 that proves is a success."""
    world = World(40, monkeypatch, abort=SLOW_DOWN)
    world.run(look_first=False, in_flight=8)
    assert world.batch.sizes[0] == 8
    assert min(world.batch.sizes) == 4
    assert world.batch.sizes[-1] == 8


def test_a_caller_who_leaves_early_awaits_what_is_in_flight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing new is sent, and no request of the sweep is under way after it."""
    world = World(20, monkeypatch)
    ended = world.each(look_first=False)
    next(ended)
    asked = len(world.batch.asked)
    ended.close()
    assert world.batch.unheard == []
    assert len(world.batch.asked) == asked


def test_after_ctrl_c_nobody_waits_for_what_is_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody waits for the prompt."""
    world = World(20, monkeypatch)
    ended = world.each(look_first=False)
    next(ended)
    with pytest.raises(KeyboardInterrupt):
        try:
            raise KeyboardInterrupt
        finally:
            ended.close()
    assert len(world.batch.unheard) == 3


@pytest.mark.parametrize("failing", [True, False])
def test_uploads_that_cannot_be_listed_to_their_end_lose_no_answer(
    monkeypatch: pytest.MonkeyPatch, failing: bool
) -> None:
    """The listing's error is raised when the uploads that it gave before have ended."""
    world = World(6, monkeypatch, **({"parts": NO_ANSWER} if failing else {}))

    def broken() -> Iterator[UploadName]:
        yield from world.uploads[:4]
        raise PermissionDenied("not allowed", status=403)

    told: list[str] = []
    with pytest.raises(PermissionDenied):
        for upload, _ in world.each(uploads=broken()):
            told.append(upload.key)
    assert sorted(told) == [upload.key for upload in world.uploads[:4]]


def test_a_store_without_a_batch_is_asked_by_verbs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else changes."""
    world = World(5, monkeypatch)
    monkeypatch.setattr(steps, "batch_of", lambda store: None)
    told = world.run()
    assert {one.removal for one in told.values()} == {Removal.ABORTED}
    assert world.batch.asked == []
    assert not world.store.open_uploads()


def completed_by_another(world: World, uploads: Iterable[UploadName]) -> None:
    """Somebody else completes uploads, and time goes by."""
    for upload in uploads:
        part = Part(1, world.store.list_parts(upload.key, upload.upload_id)[0].etag, 3)
        world.store.complete_upload(upload.key, upload.upload_id, [part])
    world.clock.sleep(LOOK_SECONDS_MAX + 0.1)


def removals(world: World) -> Iterator[tuple[UploadName, steps.Start[Removed]]]:
    """The removals of all uploads of a world, each with a look first."""
    remover = UploadRemover(world.runtime)
    return ((upload, remover.to_remove(upload)) for upload in world.uploads)


def test_a_pause_of_the_caller_makes_looks_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """On some stores the abort of a completed upload deletes its object. Uploads that are completed
    while the caller pauses are looked at again, and never aborted."""
    world = World(20, monkeypatch)
    told: dict[str, Removed] = {}
    with closing(each(world.runtime, removals(world), in_flight=8)) as ended:
        for upload, removed in ended:
            told[upload.key] = removed
            if len(told) == 1:
                aborted = {key for ask, key in world.batch.asked if ask == "AbortUpload"}
                others = [one for one in world.uploads if one.key not in aborted]
                completed_by_another(world, others)
                world.by_verbs.clear()
                asked = len(world.batch.asked)
    assert len(others) > 8
    assert {one.key for one in others} == set(world.store.keys())
    assert all(told[one.key].removal is Removal.VISIBLE for one in others)
    late = [*world.batch.asked[asked:], *world.by_verbs]
    assert not [key for ask, key in late if "bort" in ask and key in world.store.keys()]


def test_failures_that_go_by_verbs_make_looks_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the failures of a batch are asked for again, other works wait with their next request.
    If that is an abort, its work begins anew."""
    world = World(40, monkeypatch)
    busy = world.uploads[:FAILED_RUN_MAX]
    world.lies.update({(ListParts, one.key): NO_ANSWER for one in busy})
    told: dict[str, Removed] = {}
    others: list[UploadName] = []
    with closing(each(world.runtime, removals(world), in_flight=40)) as ended:
        for upload, removed in ended:
            told[upload.key] = removed
            if world.by_verbs and not others:
                done = {key for ask, key in world.batch.asked if ask == "AbortUpload"}
                done |= {one.key for one in busy}
                others = [one for one in world.uploads if one.key not in done]
                completed_by_another(world, others)
                asked = len(world.batch.asked)
                world.by_verbs.clear()
    assert len(others) == 40 - FAILED_RUN_MAX
    assert len(told) == 40
    assert {one.key for one in others} <= set(world.store.keys())
    assert all(told[one.key].removal is Removal.VISIBLE for one in others)
    late = [*world.batch.asked[asked:], *world.by_verbs]
    mine = {one.key for one in others}
    assert not [key for ask, key in late if "bort" in ask and key in mine]
