"""What an upload is, told from each answer that a store may give; and removing one, proved."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from magic_committer.commit.sets import ReadyUpload
from magic_committer.commit.uploads import (
    ABORTS_MAX,
    Removal,
    UploadName,
    UploadRemover,
    UploadState,
    became,
    upload_state,
)
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
from magic_committer.stores.base import Attributes, ObjectInfo
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.testing import PatientClock
from tests.costly import CostlyStore

KEY = "t/a.csv"
REFUSALS: dict[str, StoreError] = {
    "403": PermissionDenied("not allowed", status=403, code="AccessDenied"),
    "400": InvalidRequest("a key is needed", status=400, code="InvalidRequest"),
    "501": NotSupported("no such call", status=501, code="NotImplemented"),
    "no answer": Unanswered("no answer"),
}


NO_BUCKET = NotFound("no such bucket", status=404, code="NoSuchBucket")


class World:
    """One store with one upload of ours.

    Attributes:
        refused: the verbs that are answered with an error.
        sent: the verbs, in order.
    """

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.clock = PatientClock()
        self.store = store or CostlyStore(self.clock)
        self.runtime = Runtime(self.store, clock=self.clock)
        made = self.store.create_upload(
            KEY, attributes=Attributes(metadata={TOKEN_METADATA: "job.attempt.1"})
        )
        self.part = self.store.put_part(KEY, made.upload_id, 1, memoryview(b"abc"))
        self.upload = UploadName(KEY, made.upload_id, "job.attempt.1")
        self.unnamed = UploadName(KEY, made.upload_id)
        self.refused: dict[str, StoreError] = {}
        self.sent: list[str] = []
        self.deeds: list[tuple[str, int, Callable[[], object]]] = []
        self.store.before = self._before

    def _before(self, request: Request) -> None:
        self.sent.append(request.verb)
        for deed in list(self.deeds):
            verb, number, do = deed
            if request.verb == verb and self.sent.count(verb) == number:
                self.deeds.remove(deed)
                self.quietly(do)
        if request.verb in self.refused:
            raise self.refused[request.verb]

    def quietly(self, do: Callable[[], object]) -> None:
        self.store.before, before = None, self.store.before
        do()
        self.store.before = before

    def before(self, verb: str, number: int, do: Callable[[], object]) -> None:
        """Let somebody act before the n-th request of a verb."""
        self.deeds.append((verb, number, do))

    def complete(self) -> None:
        self.store.complete_upload(KEY, self.upload.upload_id, [self.part])

    def drop(self) -> None:
        self.store.drop_upload(self.upload.upload_id)

    def overwrite(self) -> None:
        self.store.put_object(KEY, b"theirs")

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

    @property
    def is_open(self) -> bool:
        return bool(self.store.open_uploads(KEY))


TRUTHS = {
    "open": UploadState.OPEN,
    "open over another's": UploadState.OPEN,
    "visible": UploadState.VISIBLE,
    "overwritten": UploadState.GONE,
    "aborted": UploadState.GONE,
}


@pytest.mark.parametrize("truth", TRUTHS)
@pytest.mark.parametrize(
    ("verb", "answer"), [("", ""), *product(("list_parts", "head"), REFUSALS), ("list", "403")]
)
def test_a_look_tells_what_an_upload_is_or_nothing(truth: str, verb: str, answer: str) -> None:
    """A refused ListParts is never taken for gone: the upload is visible if its object tells so,
    else unknown. A refused HEAD hides what became of an upload that has ended, and no more; that
    nothing is there a listing shows, if it is allowed. A HEAD without answer ends the look."""
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
    """A file-backed store answers HEAD of an element over 255 bytes with 400: its upload can be
    removed, and that it is gone be told. ``t/a.csv.gz`` in the listing is not ``t/a.csv``."""
    world = World()
    world.refused["head"] = REFUSALS["400"]
    if there == "a longer key":
        world.quietly(lambda: world.store.put_object(f"{KEY}.gz", b"theirs"))
    assert UploadRemover(world.runtime).remove(world.upload).removal is Removal.ABORTED
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
    ready = ReadyUpload(KEY, "id", (), 3, None, token, multipart_etag)
    assert became(ready, info) is became(UploadName.of(ready), info) is expected


def deaf(world: World, times: int) -> None:
    """Let so many aborts take no effect, though they are answered with success."""
    store = world.store
    real, heard = store.abort_upload, 0

    def abort(key: str, upload_id: str) -> None:
        nonlocal heard
        heard += 1
        if heard > times:
            real(key, upload_id)
        else:
            store._send(Request("abort_upload", key, upload_id=upload_id), lambda: None)

    store.abort_upload = abort  # type: ignore[method-assign]


@pytest.mark.parametrize("truth", ["visible", "overwritten", "aborted"])
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("head", ["", "403"])
def test_what_has_ended_is_not_aborted(truth: str, named: bool, head: str) -> None:
    """An abort after the end could cost the object that is at its key now; the parts tell."""
    world = World()
    world.make(truth)
    if head:
        world.refused["head"] = REFUSALS[head]
    removed = UploadRemover(world.runtime).remove(world.upload if named else world.unnamed)
    visible = named and truth == "visible" and not head
    assert removed.removal is (Removal.VISIBLE if visible else Removal.GONE)
    assert "abort_upload" not in world.sent


@pytest.mark.parametrize("answer", REFUSALS)
def test_an_abort_that_is_refused_is_left_with_the_reason(answer: str) -> None:
    """The store's error is in the answer, and nothing is raised."""
    world = World()
    world.refused["abort_upload"] = REFUSALS[answer]
    left = UploadRemover(world.runtime).remove(world.upload)
    assert (left.removal, left.error, left.sent) == (Removal.LEFT, REFUSALS[answer], False)
    assert world.is_open


@pytest.mark.parametrize("answer", [None, *REFUSALS])
def test_what_is_completed_between_look_and_abort_is_not_called_aborted(answer: str | None) -> None:
    """It is visible; where that may not be seen, it is said to be unknown, with the error."""
    world = World(MemoryStore(clock=PatientClock().now))
    world.before("abort_upload", 1, world.complete)
    if answer is None:
        assert UploadRemover(world.runtime).remove(world.upload).removal is Removal.VISIBLE
        assert world.store.body(KEY) == b"abc"
        return
    world.before("abort_upload", 1, lambda: world.refused.update(head=REFUSALS[answer]))
    removed = UploadRemover(world.runtime).remove(world.upload)
    assert (removed.removal, removed.error) == (Removal.ABORTED, REFUSALS[answer])
    assert "whether it was completed just before cannot be told" in removed.why


@pytest.mark.parametrize("answer", REFUSALS)
@pytest.mark.parametrize("truth", ["open over another's", "overwritten"])
def test_without_parts_no_object_at_the_key_is_risked(truth: str, answer: str) -> None:
    """It may be what the upload became, or have replaced it: no abort is sent."""
    world = World()
    world.make(truth)
    world.refused["list_parts"] = REFUSALS[answer]
    removed = UploadRemover(world.runtime).remove(world.unnamed)
    assert (removed.removal, removed.error) == (Removal.LEFT, REFUSALS[answer])
    assert "cannot be told" in removed.why
    assert "abort_upload" not in world.sent


@pytest.mark.parametrize("answer", ["403", "400", "501"])
def test_where_the_parts_cannot_be_listed_and_nothing_is_there_it_is_aborted(answer: str) -> None:
    """No object is at the key, so the abort can cost none; a listing of the key proves it."""
    world = World()
    world.refused["list_parts"] = REFUSALS[answer]
    assert UploadRemover(world.runtime).remove(world.unnamed).removal is Removal.ABORTED
    assert not world.is_open
    assert world.sent[-1] == "list_uploads"


@pytest.mark.parametrize(
    ("listing", "head"),
    [("no answer", None), ("403", "403"), ("403", "400"), ("403", "no answer")],
)
def test_an_abort_in_the_dark_is_not_sent(listing: str, head: str | None) -> None:
    """A look without an answer is none; where nothing can be seen an abort may cost an object."""
    world = World()
    world.refused["list_parts"] = REFUSALS[listing]
    if head is not None:
        world.refused |= {"list": REFUSALS["403"], "head": REFUSALS[head]}
    assert UploadRemover(world.runtime).remove(world.upload).removal is Removal.LEFT
    assert "abort_upload" not in world.sent


@pytest.mark.parametrize(
    ("parts", "listing"),
    [("403", "403"), ("403", "501"), ("403", "no answer"), ("no answer", ""), ("no bucket", "")],
)
def test_an_abort_that_nobody_can_prove_is_left_as_sent(parts: str, listing: str) -> None:
    """It is not called gone, and the refusal is told."""
    world = World()
    world.refused = {"list_parts": {**REFUSALS, "no bucket": NO_BUCKET}[parts]}
    if listing:
        world.refused["list_uploads"] = REFUSALS[listing]
    left = UploadRemover(world.runtime, look_first=False).remove(world.upload)
    assert (left.removal, left.sent, left.error) == (
        Removal.LEFT, True, world.refused["list_parts"]
    )  # fmt: skip
    assert world.sent.count("abort_upload") == 1
    look = upload_state(world.runtime, world.upload)
    assert parts == "403" or (look.state, look.ended) == (UploadState.UNKNOWN, False)


def test_a_listing_of_longer_keys_is_no_listing_of_the_upload() -> None:
    """The listing by exact key stops behind it, and another upload's id is not taken for its."""
    world = World(MemoryStore(clock=PatientClock().now, page_keys=1))
    world.quietly(lambda: world.store.start_upload(KEY))
    for number in range(4):
        world.quietly(lambda n=number: world.store.start_upload(f"{KEY}.{n}"))  # type: ignore[misc]
    world.refused["list_parts"] = REFUSALS["403"]
    removed = UploadRemover(world.runtime, look_first=False).remove(world.upload)
    assert removed.removal is Removal.ABORTED
    assert world.sent.count("list_uploads") == 2


def test_a_listing_that_still_shows_it_is_believed() -> None:
    """Where only a listing can prove, an upload that it shows is aborted again, then left."""
    world = World()
    deaf(world, 99)
    world.refused["list_parts"] = REFUSALS["403"]
    removed = UploadRemover(world.runtime, look_first=False).remove(world.upload)
    assert (removed.removal, removed.sent) == (Removal.LEFT, False)
    assert world.sent.count("abort_upload") == ABORTS_MAX
