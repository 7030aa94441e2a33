"""What an upload is, told from each answer that a store may give; and removing one, proved."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from magic_committer._runtime import Runtime
from magic_committer.commit.ready import ReadyUpload
from magic_committer.commit.upload_state import (
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
def test_a_store_that_answers_tells_what_an_upload_is(truth: str) -> None:
    """Each state is told as it is, with the object that was met and the parts that are stored."""
    world = World()
    world.make(truth)
    look = upload_state(world.runtime, world.upload)
    assert look.state is TRUTHS[truth]
    assert look.error is None
    assert look.ended == (TRUTHS[truth] is not UploadState.OPEN)
    assert (look.there is not None) == (truth in ("open over another's", "visible", "overwritten"))
    assert [part.size for part in look.parts] == ([3] if look.state is UploadState.OPEN else [])


@pytest.mark.parametrize("truth", TRUTHS)
def test_without_a_mark_only_the_parts_tell(truth: str) -> None:
    """No object is looked at: an upload that was completed is gone, too."""
    world = World()
    world.make(truth)
    state = upload_state(world.runtime, world.unnamed).state
    is_open = TRUTHS[truth] is UploadState.OPEN
    assert state is (UploadState.OPEN if is_open else UploadState.GONE)
    assert world.sent == ["list_parts"]


@pytest.mark.parametrize("answer", REFUSALS)
@pytest.mark.parametrize("truth", TRUTHS)
def test_a_refused_list_parts_is_never_taken_for_gone(truth: str, answer: str) -> None:
    """Whatever ListParts is answered but "not there": visible if the object tells so, else it
    cannot be told, with the reason."""
    world = World()
    world.make(truth)
    world.refused["list_parts"] = REFUSALS[answer]
    look = upload_state(world.runtime, world.upload)
    if truth == "visible":
        assert (look.state, look.error) == (UploadState.VISIBLE, None)
    else:
        assert (look.state, look.error) == (UploadState.UNKNOWN, REFUSALS[answer])
        assert not look.ended


@pytest.mark.parametrize("answer", ["403", "400", "501"])
@pytest.mark.parametrize("truth", TRUTHS)
def test_a_refused_head_hides_what_became_of_it_and_no_more(truth: str, answer: str) -> None:
    """An open upload is told by its parts; of one that has ended it is told that it has, and that
    what became of it cannot be told."""
    world = World()
    world.make(truth)
    world.refused["head"] = REFUSALS[answer]
    look = upload_state(world.runtime, world.upload)
    if TRUTHS[truth] is UploadState.OPEN:
        assert (look.state, look.error) == (UploadState.OPEN, None)
    elif truth == "aborted" and answer in ("400", "403"):  # a listing shows that nothing is there
        assert (look.state, look.error) == (UploadState.GONE, None)
    else:
        assert (look.state, look.error) == (UploadState.UNKNOWN, REFUSALS[answer])
        assert look.ended


def test_a_key_that_the_store_calls_wrong_and_does_not_list_holds_nothing() -> None:
    """A file-backed store answers HEAD of an element over 255 bytes with 400: its upload can be
    removed, and that it is gone be told."""
    world = World()
    world.refused["head"] = REFUSALS["400"]
    assert UploadRemover(world.runtime).remove(world.upload).removal is Removal.ABORTED
    assert upload_state(world.runtime, world.upload).state is UploadState.GONE


@pytest.mark.parametrize("head", ["400", "403"])
def test_a_listing_that_is_refused_too_tells_nothing(head: str) -> None:
    """HEAD is refused, and the listing is not allowed: what is there cannot be told."""
    world = World()
    world.make("aborted")
    world.refused |= {"head": REFUSALS[head], "list": REFUSALS["403"]}
    look = upload_state(world.runtime, world.upload)
    assert (look.state, look.error) == (UploadState.UNKNOWN, REFUSALS["403"])


def test_a_longer_key_in_the_listing_is_not_the_key() -> None:
    """The listing by prefix shows ``t/a.csv.gz``, not ``t/a.csv``: nothing is at the key."""
    world = World()
    world.make("aborted")
    world.quietly(lambda: world.store.put_object(f"{KEY}.gz", b"theirs"))
    world.refused["head"] = REFUSALS["400"]
    assert upload_state(world.runtime, world.upload).state is UploadState.GONE


def test_a_head_without_answer_ends_the_look() -> None:
    """A store that is down is not asked three times over."""
    world = World()
    world.refused["head"] = REFUSALS["no answer"]
    look = upload_state(world.runtime, world.upload)
    assert (look.state, look.error) == (UploadState.UNKNOWN, REFUSALS["no answer"])
    assert world.sent == ["head"]


def test_a_bucket_that_is_not_there_says_nothing_of_an_upload() -> None:
    """404 NoSuchBucket is an answer to another question: it cannot be told."""
    world = World()
    missing = NotFound("no such bucket", status=404, code="NoSuchBucket")
    world.refused["list_parts"] = missing
    look = upload_state(world.runtime, world.upload)
    assert (look.state, look.error, look.ended) == (UploadState.UNKNOWN, missing, False)


@pytest.mark.parametrize("overwritten", [False, True])
def test_what_is_completed_between_head_and_list_parts_is_looked_at_again(
    overwritten: bool,
) -> None:
    """The object is told before an upload is called gone; another's is not taken for it."""
    world = World()
    world.before("list_parts", 1, world.complete)
    if overwritten:
        world.before("head", 2, world.overwrite)
    look = upload_state(world.runtime, world.upload)
    assert look.state is (UploadState.GONE if overwritten else UploadState.VISIBLE)
    assert look.ended
    assert look.there is not None
    assert became(world.upload, look.there) is not overwritten


def test_what_was_aborted_before_the_first_question_is_not_what_another_wrote_since() -> None:
    """Another's object that appears between the two looks does not make the upload visible."""
    world = World()
    world.make("aborted")
    world.before("head", 2, world.overwrite)
    assert upload_state(world.runtime, world.upload).state is UploadState.GONE


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
    token: str,
    multipart_etag: str,
    metadata: dict[str, str] | None,
    etag: str,
    expected: bool,
) -> None:
    """A token decides alone; without one the multipart ETag does; with neither nothing is."""
    info = ObjectInfo(KEY, 3, etag, 0.0, 0.0, metadata)
    ready = ReadyUpload(KEY, "id", (), 3, None, token, multipart_etag)
    assert became(ready, info) is became(UploadName.of(ready), info) is expected


# Removing -----------------------------------------------------------------------------------------


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
def test_what_has_ended_is_not_aborted(truth: str, named: bool) -> None:
    """On some stores an abort after the end would cost the object that is at its key now."""
    world = World()
    world.make(truth)
    removed = UploadRemover(world.runtime).remove(world.upload if named else world.unnamed)
    visible = named and truth == "visible"
    assert removed.removal is (Removal.VISIBLE if visible else Removal.GONE)
    assert "abort_upload" not in world.sent


def test_an_upload_that_ended_needs_no_head_to_be_left_alone() -> None:
    """Its parts are gone: that its object may not be looked at does not matter."""
    world = World()
    world.make("visible")
    world.refused["head"] = REFUSALS["403"]
    assert UploadRemover(world.runtime).remove(world.upload).removal is Removal.GONE
    assert "abort_upload" not in world.sent


@pytest.mark.parametrize("answer", REFUSALS)
def test_an_abort_that_is_refused_is_left_with_the_reason(answer: str) -> None:
    """The store's error is in the answer, and nothing is raised."""
    world = World()
    world.refused["abort_upload"] = REFUSALS[answer]
    removed = UploadRemover(world.runtime).remove(world.upload)
    assert (removed.removal, removed.error, removed.sent) == (
        Removal.LEFT,
        REFUSALS[answer],
        False,
    )
    assert world.is_open


def test_what_is_completed_between_look_and_abort_is_told_as_visible() -> None:
    """ "Aborted" is not said of an upload that has become its object."""
    world = World(MemoryStore(clock=PatientClock().now))
    world.before("abort_upload", 1, world.complete)
    assert UploadRemover(world.runtime).remove(world.upload).removal is Removal.VISIBLE
    assert world.store.body(KEY) == b"abc"


@pytest.mark.parametrize("answer", REFUSALS)
def test_that_nobody_could_see_the_object_after_an_abort_is_told(answer: str) -> None:
    """The parts are gone; whether the upload was completed before the abort is said to be unknown,
    with the store's error."""
    world = World(MemoryStore(clock=PatientClock().now))
    world.before("abort_upload", 1, world.complete)
    world.before("abort_upload", 1, lambda: world.refused.update(head=REFUSALS[answer]))
    removed = UploadRemover(world.runtime).remove(world.upload)
    assert (removed.removal, removed.error) == (Removal.ABORTED, REFUSALS[answer])
    assert "whether it was completed just before cannot be told" in removed.why


@pytest.mark.parametrize("answer", REFUSALS)
@pytest.mark.parametrize("truth", ["open over another's", "overwritten"])
def test_where_the_parts_cannot_be_listed_an_object_at_the_key_is_not_risked(
    truth: str, answer: str
) -> None:
    """It may be what the upload became, or have replaced it: the upload is left, with the reason,
    and no abort is sent."""
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


@pytest.mark.parametrize("listing", ["403", "501", "no answer"])
def test_an_abort_that_nobody_can_prove_is_left_as_sent(listing: str) -> None:
    """Neither parts nor uploads may be listed: it is not called gone, and the refusal is told."""
    world = World()
    world.refused = {"list_parts": REFUSALS["403"], "list_uploads": REFUSALS[listing]}
    removed = UploadRemover(world.runtime, look_first=False).remove(world.upload)
    assert (removed.removal, removed.sent, removed.error) == (
        Removal.LEFT,
        True,
        REFUSALS["403"],
    )
    assert world.sent.count("abort_upload") == 1


@pytest.mark.parametrize(
    "error",
    [REFUSALS["no answer"], NotFound("no such bucket", status=404, code="NoSuchBucket")],
)
def test_an_abort_that_cannot_be_proved_is_left_as_sent(error: StoreError) -> None:
    """No answer, or a bucket that vanished: the abort may have taken effect."""
    world = World()
    world.refused["list_parts"] = error
    removed = UploadRemover(world.runtime, look_first=False).remove(world.upload)
    assert (removed.removal, removed.sent) == (Removal.LEFT, True)


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
