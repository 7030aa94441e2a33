"""Completing many uploads in a batch: which answers are done, which are sent again, when a batch
takes no more."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from typing import Any

import pytest

from magic_committer._runtime import Runtime
from magic_committer.commit import completing
from magic_committer.commit.complete import Completion, complete
from magic_committer.commit.completing import FAILED_MAX, FAILED_RUN_MAX, Completing
from magic_committer.commit.ready import ReadyUpload
from magic_committer.errors import (
    NotFound,
    PermissionDenied,
    PreconditionFailed,
    StoreError,
    Unanswered,
    WriteConflict,
)
from magic_committer.hadoop.statistics import Statistics
from magic_committer.protocol.record import TOKEN_METADATA
from magic_committer.stores.base import Ask, Attributes, Batch, CompleteUpload, Written
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.testing import PatientClock

NO_ANSWER = Unanswered("no answer")
SLOW_DOWN = Unanswered("slow down", status=503, code="SlowDown")
Answers = dict[str, Written | StoreError]


class Told:
    """A batch that keeps ``in_flight`` requests under way, and answers as told: by the store, or
    with what is given for a key, in place of the store.

    Attributes:
        asked: the keys, in the order in which they were taken. flying: how many at most were.
        unheard: keys whose answers were never taken.
    """

    def __init__(self, store: MemoryStore, answers: Answers) -> None:
        self._store = store
        self._answers = answers
        self.asked: list[str] = []
        self.flying = 0
        self.unheard: list[str] = []

    def ask_each(
        self, asks: Iterable[tuple[Any, Ask]], *, in_flight: Callable[[], int]
    ) -> Generator[tuple[Any, Written | StoreError], None, None]:
        """As the port says."""
        source, under_way = iter(asks), list[tuple[Any, Ask]]()
        try:
            while True:
                while len(under_way) < in_flight() and (one := next(source, None)) is not None:
                    under_way.append(one)
                    self.asked.append(one[1].key)
                self.flying = max(self.flying, len(under_way))
                if not under_way:
                    return
                item, ask = under_way.pop(0)
                yield item, self._answer(ask)
        finally:
            self.unheard = [ask.key for _, ask in under_way]

    def _answer(self, ask: Ask) -> Written | StoreError:
        told = self._answers.get(ask.key)
        if told is not None and not isinstance(told, Written):
            return told
        done = self._store.complete_upload(ask.key, ask.upload_id, ask.parts)  # type: ignore[union-attr]
        return told or done


class World:
    """Some uploads on a store with a batch that answers as told.

    Attributes:
        by_verbs: keys of Completes that were sent by the store's verb.
    """

    def __init__(
        self, files: int, monkeypatch: pytest.MonkeyPatch, answers: Answers | None = None
    ) -> None:
        clock = PatientClock()
        self.store = MemoryStore(clock=clock.now, forgetful_complete=True)
        self.runtime = Runtime(self.store, clock=clock)
        self.batch = Told(self.store, answers or {})
        monkeypatch.setattr(completing, "batch_of", lambda store: self.batch)
        self.uploads = [self._upload(f"t/{number}.csv", number) for number in range(files)]
        self.by_verbs: list[str] = []
        self.looks: list[str] = []
        self.statistics = Statistics()
        self.down = False

    def _upload(self, key: str, number: int) -> ReadyUpload:
        token = f"job.attempt.{number}"
        made = self.store.create_upload(
            key, attributes=Attributes(metadata={TOKEN_METADATA: token})
        )
        part = self.store.put_part(key, made.upload_id, 1, memoryview(b"abc"))
        return ReadyUpload(key, made.upload_id, (part,), 3, None, token, "")

    def each(
        self,
        *,
        if_none_match: bool = False,
        distrust: bool = False,
        in_flight: int = 4,
        uploads: Iterable[ReadyUpload] | None = None,
    ) -> Generator[completing.Completed, None, None]:
        """Complete them."""
        asked = self.batch.asked

        def note(request: Request) -> None:
            if request.verb == "complete_upload" and request.key in self.sent_by_verb:
                self.by_verbs.append(request.key)
            if request.verb == "head":
                self.looks.append(request.key)

        self.sent_by_verb = {
            key
            for key, told in self.batch._answers.items()
            if not isinstance(told, Written) or told.attempts > 1
        }
        if distrust:
            self.sent_by_verb = {upload.key for upload in self.uploads}
        assert not asked
        self.store.before = note
        return Completing(
            self.runtime,
            if_none_match=if_none_match,
            distrust=distrust,
            in_flight=in_flight,
            statistics=self.statistics,
            gives_up=lambda: self.down,
        ).each(self.uploads if uploads is None else uploads)

    def run(self, **how: Any) -> dict[str, Completion]:
        """What became of each, by key."""
        with closing(self.each(**how)) as completed:
            return {upload.key: completion for upload, completion, _ in completed}


def test_plain_successes_are_done_and_looked_at_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each upload is sent once, and no second request follows."""
    world = World(10, monkeypatch)
    done = world.run()
    assert done == {upload.key: Completion.DONE for upload in world.uploads}
    assert sorted(world.batch.asked) == sorted(done)
    assert (world.by_verbs, world.looks) == ([], [])
    assert world.batch.flying == 4


@pytest.mark.parametrize(
    "error",
    [NO_ANSWER, SLOW_DOWN, PermissionDenied("expired", status=403), NotFound("?", status=404)],
    ids=["no answer", "slow down", "403", "404"],
)
def test_what_fails_in_a_batch_is_sent_again_and_looked_after(
    error: StoreError, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the error was, the upload is completed by the verb, and its 200 is not believed: one
    HEAD follows."""
    world = World(5, monkeypatch, {"t/2.csv": error})
    assert set(world.run().values()) == {Completion.DONE}
    assert world.by_verbs == ["t/2.csv"]
    assert world.looks == ["t/2.csv"]
    assert "t/2.csv" in world.store.keys()


def test_a_failure_that_stays_is_told_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """An upload that nobody could complete is neither done nor forgotten."""
    world = World(3, monkeypatch, {"t/1.csv": NO_ANSWER})
    completed = world.each()
    before = world.store.before

    def refuse(request: Request) -> None:
        assert before is not None
        before(request)
        if (request.verb, request.key) == ("complete_upload", "t/1.csv"):
            raise NO_ANSWER

    world.store.before = refuse
    told = {upload.key: (completion, error) for upload, completion, error in completed}
    assert told.pop("t/1.csv") == (Completion.UNFINISHED, NO_ANSWER)
    assert set(told.values()) == {(Completion.DONE, None)}


def test_a_success_that_was_sent_more_than_once_is_looked_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A batch that says that it sent a Complete twice is not believed."""
    world = World(3, monkeypatch, {"t/1.csv": Written('"etag"', attempts=2)})
    assert set(world.run().values()) == {Completion.DONE}
    assert "t/1.csv" in world.looks


def test_who_distrusts_the_store_uses_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every 200 is looked after, each upload goes by the verbs, with its HEAD."""
    world = World(3, monkeypatch)
    assert set(world.run(distrust=True).values()) == {Completion.DONE}
    assert world.batch.asked == []
    assert len(world.by_verbs) == len(world.looks) == 3


@pytest.mark.parametrize(
    "error", [PreconditionFailed("412", status=412), WriteConflict("409", status=409)]
)
def test_a_conflict_stops_the_batch_and_is_settled_before_the_rest(
    error: StoreError, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing new is sent after a conflict: what was in flight is awaited, and the conflict is told
    before any other failure is sent again."""
    answers: Answers = {"t/3.csv": NO_ANSWER, "t/4.csv": error, "t/6.csv": NO_ANSWER}
    world = World(30, monkeypatch, answers)
    world.store.put_object("t/4.csv", b"another's")
    with closing(world.each(if_none_match=True)) as completed:
        for upload, completion, _ in completed:
            if completion is Completion.CONFLICT:
                assert upload.key == "t/4.csv"
                break
    assert len(world.batch.asked) == 8
    assert world.batch.unheard == []
    assert set(world.by_verbs) == {"t/4.csv"}
    assert world.store.body("t/4.csv") == b"another's"


def test_without_a_condition_409_and_412_stop_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are failures like others: sent again, while the rest goes on."""
    world = World(20, monkeypatch, {"t/4.csv": WriteConflict("409", status=409)})
    assert set(world.run().values()) == {Completion.DONE}
    assert world.batch.asked[-1] == "t/19.csv"


def test_a_batch_takes_no_more_after_many_failures_in_a_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The store may be down: what failed is sent again before anything new is tried."""
    keys = [f"t/{number}.csv" for number in range(FAILED_RUN_MAX)]
    world = World(60, monkeypatch, dict.fromkeys(keys, NO_ANSWER))
    completed = world.each()
    upload, _, _ = next(completed)
    assert upload.key == f"t/{FAILED_RUN_MAX}.csv"
    asked = len(world.batch.asked)
    assert asked == FAILED_RUN_MAX + 3
    assert {one.key for one, completion, _ in completed if completion is Completion.DONE} == {
        one.key for one in world.uploads if one is not upload
    }


def test_a_batch_holds_a_limited_number_of_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failures with successes in between are sent again when there are `FAILED_MAX` of them."""
    files = 2 * FAILED_MAX + 40
    answers: Answers = {f"t/{n}.csv": NO_ANSWER for n in range(0, files, 2)}
    world = World(files, monkeypatch, answers)
    asked: list[int] = []
    real = complete

    def noting(*args: Any, **how: Any) -> Any:
        asked.append(len(world.batch.asked))
        return real(*args, **how)

    monkeypatch.setattr(completing, "complete", noting)
    assert set(world.run().values()) == {Completion.DONE}
    assert 2 * FAILED_MAX <= asked[0] <= 2 * FAILED_MAX + 4
    assert len(asked) == len(answers)


def test_uploads_are_given_up_when_the_caller_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failures of a store that is down are told as unfinished, and are not sent again."""
    world = World(4, monkeypatch, {"t/1.csv": NO_ANSWER})
    world.down = True
    done = world.run()
    assert done.pop("t/1.csv") is Completion.UNFINISHED
    assert set(done.values()) == {Completion.DONE}
    assert world.by_verbs == []


def test_a_caller_who_leaves_early_gives_up_nothing_in_flight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Some stores lose an upload whose client hangs up: the answers to all that was sent are
    awaited, and nothing new is sent."""
    world = World(20, monkeypatch)
    completed = world.each()
    next(completed)
    completed.close()
    assert world.batch.unheard == []
    assert set(world.batch.asked) == set(world.store.keys())
    assert len(world.batch.asked) <= 5


def test_after_ctrl_c_nobody_waits_for_what_is_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody waits for the prompt."""
    world = World(20, monkeypatch)
    completed = world.each()
    next(completed)
    with pytest.raises(KeyboardInterrupt):
        try:
            raise KeyboardInterrupt
        finally:
            completed.close()
    assert len(world.batch.unheard) == 3


def test_uploads_that_cannot_be_read_lose_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a broken spool is raised when all that was sent is answered and told."""
    world = World(6, monkeypatch, {"t/1.csv": NO_ANSWER})

    def broken() -> Iterator[ReadyUpload]:
        yield from world.uploads[:4]
        raise OSError("the disk is gone")

    told: list[str] = []
    with pytest.raises(OSError, match="disk"):
        for upload, _, _ in world.each(uploads=broken()):
            told.append(upload.key)
    assert sorted(told) == [upload.key for upload in world.uploads[:4]]


def test_the_store_decides_how_many_are_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a 503 half as many requests are under way."""
    world = World(40, monkeypatch, {"t/0.csv": SLOW_DOWN})
    sizes: list[int] = []
    ask_each = world.batch.ask_each

    def noting(asks: Any, *, in_flight: Callable[[], int]) -> Any:
        def size() -> int:
            sizes.append(in_flight())
            return sizes[-1]

        return ask_each(asks, in_flight=size)

    monkeypatch.setattr(world.batch, "ask_each", noting)
    world.run(in_flight=8)
    assert sizes[0] == 8
    assert min(sizes) == 4
    assert sizes[-1] > 4


def test_each_file_of_a_batch_is_counted_and_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The report's statistics have one duration for each file, however it was sent."""
    world = World(5, monkeypatch, {"t/3.csv": NO_ANSWER})
    world.run()
    told = world.statistics.to_dict()
    assert told["counters"]["committer_materialize_file"] == 5
    assert told["meanstatistics"]["committer_materialize_file.mean"]["samples"] == 5
    assert "committer_materialize_file.started" in told["minimums"]
    assert "committer_materialize_file.ended" in told["maximums"]


def test_a_memory_store_sends_each_request_of_a_batch_by_itself() -> None:
    """Its hooks see each one, and a refusal is that one's answer alone."""
    store = MemoryStore()
    uploads = [store.start_upload(f"{n}") for n in range(3)]

    def refuse(request: Request) -> None:
        if request.key == "1":
            raise NO_ANSWER

    store.before = refuse
    batch: Batch = store.batch()
    asks = [(n, CompleteUpload(str(n), uploads[n], ())) for n in range(3)]
    answers = dict(batch.ask_each(asks, in_flight=lambda: 2))
    assert answers[1] is NO_ANSWER
    assert {getattr(answers[n], "code", "") for n in (0, 2)} == {"MalformedXML"}
    assert store.requests["complete_upload"] == 3
