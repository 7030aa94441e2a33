"""What an upload is by each answer; removing it, proved; and many works at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass
from itertools import product
from types import SimpleNamespace
from typing import Any, cast

import pytest

from magic_committer.commit.requests import (
    LOOK_SECONDS_MAX,
    Ahead,
    OldLookError,
    Pause,
    Steps,
    anew,
    each,
)
from magic_committer.commit.sets import ReadyUpload
from magic_committer.commit.uploads import (
    ABORTS_MAX,
    Removal,
    Removed,
    UploadState,
    became,
    looking,
    remove,
    to_remove,
    upload_state,
)
from magic_committer.committers.ends import Turns
from magic_committer.committers.magic import Closings
from magic_committer.errors import (
    InvalidRequest,
    NotFound,
    NotSupported,
    PermissionDenied,
    StoreError,
    Unanswered,
)
from magic_committer.protocol.record import TOKEN_METADATA
from magic_committer.runtime.components import Runtime
from magic_committer.runtime.threads import Pool, ThreadPool, errand
from magic_committer.stores.base import (
    AbortUpload,
    Answer,
    Ask,
    Attributes,
    Head,
    ListParts,
    ObjectInfo,
    Written,
)
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.testing import PatientClock
from tests.at_once import AtOnce
from tests.costly import CostlyStore
from tests.unit import one_upload
from tests.unit.one_upload import KEY

REFUSALS: dict[str, StoreError] = {
    "403": PermissionDenied("not allowed", status=403, code="AccessDenied"),
    "400": InvalidRequest("a key is needed", status=400, code="InvalidRequest"),
    "501": NotSupported("no such call", status=501, code="NotImplemented"),
    "no answer": Unanswered("no answer"),
    "no bucket": NotFound("no such bucket", status=404, code="NoSuchBucket"),
}
ANSWERS = tuple(REFUSALS)[:-1]


class World(one_upload.World):
    """One store with one upload of ours, on which a needless abort does harm by default."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        clock = PatientClock()
        super().__init__(store or CostlyStore(clock), clock)
        self.unnamed = self.upload.bare._replace(token="")

    def make(self, truth: str) -> None:
        steps: dict[str, tuple[Callable[[], object], ...]] = {
            "open": (),
            "open over another's": (self.overwrite,),
            "visible": (self.complete,),
            "overwritten": (self.complete, self.overwrite),
            "aborted": (self.drop,),
        }
        for step in steps[truth]:
            self.quietly(step)


TRUTHS = {
    "open": UploadState.OPEN,
    "open over another's": UploadState.OPEN,
    "visible": UploadState.VISIBLE,
    "overwritten": UploadState.GONE,
    "aborted": UploadState.GONE,
}


@pytest.mark.parametrize("truth", TRUTHS)
@pytest.mark.parametrize(
    ("verb", "answer"), [("", ""), *product(("list_parts", "head"), ANSWERS), ("list", "403")]
)
def test_a_look_tells_what_an_upload_is_or_nothing(truth: str, verb: str, answer: str) -> None:
    """A refused ListParts is never taken for gone, and a refused HEAD hides no open upload."""
    world = World()
    world.make(truth)
    if verb:
        world.refused[verb] = REFUSALS[answer]
    if verb == "list":
        world.refused["head"] = REFUSALS["400"]
    look = upload_state(world.runtime, world.upload)
    state, ended = TRUTHS[truth], TRUTHS[truth] is not UploadState.OPEN
    listed = truth == "aborted" and verb == "head" and answer in ("400", "403")
    if answer == "no answer" and verb == "head":
        state, ended = UploadState.UNKNOWN, False
        assert world.sent == ["head"]
    elif verb in ("head", "list") and ended and not listed:
        state = UploadState.UNKNOWN
    elif verb == "list_parts" and truth != "visible":
        state, ended = UploadState.UNKNOWN, False
    unknown = state is UploadState.UNKNOWN
    assert (look.state, look.ended) == (state, ended)
    assert look.error == (REFUSALS[answer] if unknown else None)
    assert [part.size for part in look.parts] == ([3] if state is UploadState.OPEN else [])
    if not verb:
        assert (look.there is not None) == (truth not in ("open", "aborted"))


@pytest.mark.parametrize("truth", TRUTHS)
def test_without_a_mark_only_the_parts_tell(truth: str) -> None:
    """No object is looked at: an upload that was completed is gone, too."""
    world = World()
    world.make(truth)
    state = upload_state(world.runtime, world.unnamed).state
    is_open = TRUTHS[truth] is UploadState.OPEN
    assert state is (UploadState.OPEN if is_open else UploadState.GONE)
    assert world.sent == ["list_parts"]


@pytest.mark.parametrize("there", ["nothing", "a longer key"])
def test_a_key_that_the_store_calls_wrong_and_does_not_list_holds_nothing(there: str) -> None:
    """HEAD 400 of a file-backed store; a longer key in the listing is not this one."""
    world = World()
    world.refused["head"] = REFUSALS["400"]
    if there == "a longer key":
        world.quietly(lambda: world.store.put_object(f"{KEY}.gz", b"theirs"))
    assert remove(world.runtime, world.upload).removal is Removal.ABORTED
    assert upload_state(world.runtime, world.upload).state is UploadState.GONE


@pytest.mark.parametrize("then", ["completed", "completed and overwritten", "aborted before"])
def test_what_changes_between_head_and_list_parts_is_looked_at_again(then: str) -> None:
    """The object is told before an upload is called gone; another's is not taken for it."""
    world = World()
    if then == "aborted before":
        world.make("aborted")
    else:
        world.before("list_parts", 1, world.complete)
    if then != "completed":
        world.before("head", 2, world.overwrite)
    look = upload_state(world.runtime, world.upload)
    visible = then == "completed"
    assert look.state is (UploadState.VISIBLE if visible else UploadState.GONE)
    assert look.ended
    assert look.there is not None
    assert became(world.upload, look.there) is visible


@pytest.mark.parametrize(
    ("token", "multipart_etag", "metadata", "etag", "expected"),
    [
        ("u.a.1", "", {TOKEN_METADATA: "u.a.1"}, '"x-1"', True),
        ("u.a.1", "", {TOKEN_METADATA: "u.a.2"}, '"x-1"', False),
        ("u.a.1", "x-1", {}, '"x-1"', False),
        ("u.a.1", "x-1", None, '"x-1"', False),
        ("", "x-1", {}, '"x-1"', True),
        ("", "x-1", {}, '"x-2"', False),
        ("", "", {}, '"x-1"', False),
        ("", "", {}, "", False),
    ],
)
def test_an_object_is_what_an_upload_became_by_its_token_or_else_by_its_etag(
    token: str, multipart_etag: str, metadata: dict[str, str] | None, etag: str, expected: bool
) -> None:
    """A token decides alone; without one the multipart ETag does; with neither nothing is."""
    info = ObjectInfo(KEY, 3, etag, 0.0, 0.0, metadata)
    ready = ReadyUpload(KEY, "id", token, multipart_etag, (), 3)
    assert became(ready, info) is expected


@dataclass(frozen=True)
class Case:
    """What is true of an upload, what the store refuses, and what its removal comes to.

    Attributes:
        named: the upload is known by its token, too.
        look: the remover looks before it aborts; else it aborts, and proves that.
        told: the verb whose refusal is the reason.
    """

    truth: str
    refused: Mapping[str, str]
    removal: Removal
    aborts: int = 0
    named: bool = True
    look: bool = True
    told: str = ""


def removals() -> Iterator[Any]:
    """The cases, by the rule that each shows."""
    for truth, named, head in product(("visible", "overwritten", "aborted"), (True, False), (0, 1)):
        visible = named and truth == "visible" and not head
        seen = Removal.VISIBLE if visible else Removal.GONE
        case = Case(truth, {"head": "403"} if head else {}, seen, named=named)
        yield pytest.param(case, id=f"has ended-{truth}-{named}-{head}")
    for answer in ANSWERS:
        tries = ABORTS_MAX if answer == "no answer" else 1
        refused = {"abort_upload": answer}
        case = Case("open", refused, Removal.LEFT, tries, told="abort_upload")
        yield pytest.param(case, id=f"is refused-{answer}")
        for truth in ("open over another's", "overwritten"):
            refused = {"list_parts": answer}
            case = Case(truth, refused, Removal.LEFT, named=False, told="list_parts")
            yield pytest.param(case, id=f"risks another's object-{truth}-{answer}")
    for answer in ("403", "400", "501"):
        case = Case("open", {"list_parts": answer}, Removal.ABORTED, 1, named=False)
        yield pytest.param(case, id=f"nothing is at the key-{answer}")
    yield pytest.param(Case("open", {"list_parts": "no answer"}, Removal.LEFT), id="in the dark")
    for answer in ("403", "400", "no answer"):
        refused = {"list_parts": "403", "list": "403", "head": answer}
        yield pytest.param(Case("open", refused, Removal.LEFT), id=f"in the dark-{answer}")
    for parts, listing in (
        ("403", "403"), ("403", "501"), ("403", "no answer"), ("no answer", ""), ("no bucket", ""),
    ):  # fmt: skip
        refused = {"list_parts": parts, **({"list_uploads": listing} if listing else {})}
        case = Case("open", refused, Removal.LEFT, 1, look=False, told="list_parts")
        yield pytest.param(case, id=f"cannot be proved-{parts}-{listing}")


@pytest.mark.parametrize("case", [*removals()])
def test_a_removal_risks_no_object_and_believes_no_refusal(case: Case) -> None:
    """No abort where it could cost an object; what nobody has proved is left, with the reason."""
    world = World()
    world.make(case.truth)
    world.refused = {verb: REFUSALS[answer] for verb, answer in case.refused.items()}
    upload = world.upload if case.named else world.unnamed
    removed = remove(world.runtime, upload, look_first=case.look)
    assert (removed.removal, removed.sent) == (case.removal, not case.look)
    assert world.sent.count("abort_upload") == case.aborts
    if case.told:
        assert removed.error == world.refused[case.told]
    if case.told == "list_parts" and case.look:
        assert "is unknown" in removed.why
    if case.removal is Removal.ABORTED:  # a listing of the key proves it
        assert world.sent[-1] == "list_uploads"
    is_open = case.truth.startswith("open") and removed.removal is Removal.LEFT and case.look
    assert bool(world.store.open_uploads(KEY)) is is_open
    if not case.look and case.refused["list_parts"] != "403":
        look = upload_state(world.runtime, world.upload)
        assert (look.state, look.ended) == (UploadState.UNKNOWN, False)


def test_a_listing_that_still_shows_it_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only a listing can prove, an upload that it shows is aborted again, then left."""
    world = World()

    def deaf(key: str, upload_id: str) -> None:
        world.store._send(Request("abort_upload", key, upload_id=upload_id), lambda: None)

    monkeypatch.setattr(world.store, "abort_upload", deaf)
    world.refused["list_parts"] = REFUSALS["403"]
    removed = remove(world.runtime, world.upload, look_first=False)
    assert (removed.removal, removed.sent) == (Removal.LEFT, False)
    assert world.sent.count("abort_upload") == ABORTS_MAX


@pytest.mark.parametrize("answer", [None, *ANSWERS])
def test_what_is_completed_between_look_and_abort_is_not_called_aborted(answer: str | None) -> None:
    """It is visible; where that may not be seen, it is said to be unknown, with the error."""
    world = World(MemoryStore(clock=PatientClock().now))
    world.before("abort_upload", 1, world.complete)
    if answer is None:
        assert remove(world.runtime, world.upload).removal is Removal.VISIBLE
        assert world.store.body(KEY) == b"abc"
        return
    world.before("abort_upload", 1, lambda: world.refused.update(head=REFUSALS[answer]))
    removed = remove(world.runtime, world.upload)
    assert (removed.removal, removed.error) == (Removal.ABORTED, REFUSALS[answer])
    assert "whether it was completed just before is unknown" in removed.why


def test_a_listing_of_longer_keys_is_no_listing_of_the_upload() -> None:
    """The listing by exact key stops behind it, and another upload's id is not taken for its."""
    world = World(MemoryStore(clock=PatientClock().now, page_keys=1))
    world.quietly(lambda: world.store.start_upload(KEY))
    for number in range(4):
        world.quietly(lambda n=number: world.store.start_upload(f"{KEY}.{n}"))  # type: ignore[misc]
    world.refused["list_parts"] = REFUSALS["403"]
    removed = remove(world.runtime, world.upload, look_first=False)
    assert removed.removal is Removal.ABORTED
    assert world.sent.count("list_uploads") == 2


NO_ANSWER = Unanswered("no answer")
NOT_SENT = Unanswered("no connection", sent=False)
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


class Works:
    def __init__(self, files: int, **lies: Answer) -> None:
        """``lies``: about the second upload, by ``abort``, ``parts`` and ``head``."""
        kinds: dict[str, type[Ask]] = {"abort": AbortUpload, "parts": ListParts, "head": Head}
        self.clock = PatientClock()
        self.store = Lying(self.clock)
        self.store.lies = {(kinds[name], "t/1.csv"): answer for name, answer in lies.items()}
        self.runtime = Runtime(self.store, clock=self.clock)
        self.uploads = [self._upload(number) for number in range(files)]

    def _upload(self, number: int) -> ReadyUpload:
        key, token = f"t/{number}.csv", f"job.attempt.{number}"
        attributes = Attributes(metadata={TOKEN_METADATA: token})
        made = self.store.create_upload(key, attributes=attributes)
        self.store.put_part(key, made.upload_id, 1, memoryview(b"abc"))
        return ReadyUpload(key, made.upload_id, token)

    def complete(self, number: int) -> None:
        upload = self.uploads[number]
        parts = self.store.list_parts(upload.key, upload.upload_id)
        self.store.complete_upload(upload.key, upload.upload_id, parts)

    def each(
        self, *, look_first: bool = True, in_flight: int = 4
    ) -> Generator[tuple[ReadyUpload, Removed], None, None]:
        works = (
            (upload, to_remove(self.runtime, upload, look_first=look_first))
            for upload in self.uploads
        )
        return each(self.runtime, works, in_flight=in_flight)

    def run(self, **how: Any) -> dict[str, Removed]:
        with closing(self.each(**how)) as ended:
            return {upload.key: removed for upload, removed in ended}

    def kinds(self, key: str) -> list[str]:
        return [kind for kind, asked in self.store.asked if asked == key]


@pytest.mark.parametrize("look_first", [True, False])
def test_each_upload_is_aborted_and_proved_gone_in_order(look_first: bool) -> None:
    """Many at once are asked what one is asked, and never more at once than allowed."""
    world = Works(10)
    told = world.run(look_first=look_first)
    assert {one.removal for one in told.values()} == {Removal.ABORTED}
    assert len(told) == 10
    assert not world.store.open_uploads()
    proved = ["AbortUpload", "ListParts"]
    wanted = ["Head", "ListParts", *proved, "Head"] if look_first else proved
    assert [world.kinds(upload.key) for upload in world.uploads] == [wanted] * 10
    assert world.store.most == 4


@pytest.mark.parametrize("error", [NO_ANSWER, SLOW_DOWN])
@pytest.mark.parametrize("takes", [True, False])
def test_who_looked_before_an_abort_that_failed_looks_again(error: StoreError, takes: bool) -> None:
    """If the abort took effect, the upload counts as aborted; if not, it is aborted now."""
    world = Works(3, abort=error)
    world.store.takes = takes
    assert world.run()["t/1.csv"] == Removed(Removal.ABORTED)
    asked = world.kinds("t/1.csv")
    assert asked[: asked.index("AbortUpload") + 3][-2:] == ["Head", "ListParts"]
    assert asked.count("AbortUpload") == (1 if takes else 2)
    assert not world.store.open_uploads()


def test_an_abort_that_was_never_sent_aborted_nothing() -> None:
    """It counts for nothing; an abort that follows a look is sent once, others are not."""
    world = Works(3, abort=NOT_SENT)
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

    works = iter([("a", anew(start))])
    assert list(each(Runtime(store, clock=clock), works, in_flight=2)) == [("a", "aborted")]
    assert begun == [False, False]
    assert store.asked == [("ListParts", "t/a"), ("ListParts", "t/a"), ("AbortUpload", "t/a")]


def test_no_more_works_begin_than_may_be_in_flight() -> None:
    """Also while they pause: a plan of 100,000 files is never in memory as a whole."""
    clock, begun, ended, most = PatientClock(), 0, 0, 0

    def work() -> Steps[None]:
        yield Pause(1.0)

    def works() -> Iterator[tuple[int, Steps[None]]]:
        nonlocal begun, most
        for begun in range(1, 21):
            most = max(most, begun - ended)
            yield begun, work()

    for _ in each(Runtime(Lying(clock), clock=clock), works(), in_flight=4):
        ended += 1
    assert (begun, ended, most < 10) == (20, 20, True)  # some have ended, and are not given yet


def test_a_work_that_cannot_begin_anew_says_so() -> None:
    """It is never begun again by itself, from its middle."""
    clock = PatientClock()

    def work() -> Steps[None]:
        yield ListParts("t/a", "none")
        yield Pause(LOOK_SECONDS_MAX + 1)
        yield AbortUpload("t/a", "none")

    store = Lying(clock)
    store.lies = {(ListParts, "t/a"): Written("")}
    with pytest.raises(OldLookError):
        list(each(Runtime(store, clock=clock), iter([("a", work())])))
    assert store.asked == [("ListParts", "t/a")]


def test_a_work_that_asks_nothing_ends_before_the_answer_of_another() -> None:
    """Whoever waits for a small file that failed at once does not wait for other files."""
    begun: list[Callable[[], object]] = []
    store = Lying(PatientClock())
    pool = cast("Pool", SimpleNamespace(submit=begun.append))
    closings = Closings(Runtime(store, pool), cast("Turns", None), lambda: None, 0)

    def asks() -> Generator[Ask, Any, None]:
        with suppress(NotFound):
            yield Head("t/a")

    def fails() -> Generator[Ask, Any, None]:
        raise ValueError("of its own")
        yield

    closings.ask(asks())
    failed = closings.ask(fails())
    seen: list[bool] = []
    store.hears = lambda _: seen.append(failed.done())
    begun[0]()
    assert seen == [True]
    with pytest.raises(ValueError, match="of its own"):
        failed.result()


def test_who_leaves_early_begins_nothing_new() -> None:
    """Nothing is taken behind a close, and the source is not asked any more."""
    world = Works(20)
    ended = world.each(in_flight=3)
    next(ended)
    asked = len(world.store.asked)
    ended.close()
    assert len(world.store.asked) == asked


@pytest.mark.parametrize("of", ["the source", "a work"])
def test_an_error_of_the_works_comes_when_those_before_have_ended(of: str) -> None:
    """Their results are given first; what a work raises is no answer of the store's."""
    world = Works(5)

    def raises() -> Steps[Any]:
        yield Head("t/nothing.csv")

    def works() -> Iterator[tuple[Any, Any]]:
        for upload in world.uploads:
            yield upload, looking(world.runtime, upload)
        if of == "a work":
            yield None, raises()
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


@pytest.mark.parametrize("abort", [None, NO_ANSWER, NOT_SENT], ids=["none", "lost", "not sent"])
def test_a_removal_begins_anew_if_its_look_is_old(abort: Unanswered | None) -> None:
    """What was completed since then stays; what an earlier abort may have ended is aborted."""
    world = Works(2, **({"abort": abort} if abort else {}))
    aborted = abort is not None
    key, head = "t/1.csv", world.store.head
    world.uploads = [world.uploads[1]._replace(token="")]

    def slow(key: str) -> ObjectInfo:
        world.store.head = head  # type: ignore[method-assign]
        world.complete(0)
        world.clock.sleep(LOOK_SECONDS_MAX + 1)
        raise GONE

    def hears(ask: Ask) -> None:  # the last look before an abort: HEAD, where no parts are shown
        if isinstance(ask, AbortUpload if aborted else ListParts) and world.store.head is not slow:
            world.store.head = slow  # type: ignore[method-assign]
            world.store.lies[ListParts, key] = REFUSALS["403"]
            world.store.hears = lambda _: None

    world.store.hears = hears
    assert world.run()[key].removal is (Removal.ABORTED if abort is NO_ANSWER else Removal.GONE)
    assert world.kinds(key).count("AbortUpload") == aborted
    assert world.store.body(key) == b"abc"
