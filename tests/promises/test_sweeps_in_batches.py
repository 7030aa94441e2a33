"""I4: uploads that are removed many at once: what a store answers to one of them changes nothing
for the others, and none is believed to be gone that is not."""

from __future__ import annotations

from collections import defaultdict

import pytest

import magic_committer as mc
from magic_committer.errors import NotFound, PermissionDenied, StoreError, Unanswered
from magic_committer.stores.memory import MemoryStore, Request
from tests.promises.hands import DEST, control

UPLOADS = 40
FAILURES: dict[str, StoreError] = {
    "no answer": Unanswered("no answer"),
    "slow down": Unanswered("slow down", status=503, code="SlowDown"),
    "no bucket": NotFound("no such bucket", status=404, code="NoSuchBucket"),
    "an empty 404": NotFound("not found", status=404),
    "forbidden": PermissionDenied("not allowed", status=403, code="AccessDenied"),
}


def killed(s3: MemoryStore) -> mc.Job:
    """A job whose tasks were killed: only their names tell of their uploads."""
    job = mc.start(DEST)
    for number in range(UPLOADS):
        s3.start_upload(f"t/p={number % 4}/{number:02}-mcj{job.uuid}.csv")
    return job


@pytest.mark.parametrize("verb", ["abort_upload", "list_parts"])
@pytest.mark.parametrize("failure", FAILURES)
def test_what_fails_once_is_done_again(s3: MemoryStore, verb: str, failure: str) -> None:
    """Every third abort, or proof, fails once: all uploads are gone afterwards, each proved by a
    plain "no such upload" behind its last abort, and the report has nothing to warn of."""
    job = killed(s3)
    told: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    failed: set[str] = set()

    def fail(request: Request) -> None:
        third = request.key.split("-")[0][-1] in "0369"
        if request.verb == verb and third and request.key not in failed:
            failed.add(request.key)
            raise FAILURES[failure]

    def note(request: Request, answer: object) -> None:
        if request.verb in ("abort_upload", "list_parts"):
            told[request.key].append((request.verb, getattr(answer, "code", "")))

    s3.before, s3.after = fail, note
    report = job.abort()
    s3.before = s3.after = None
    assert (report.warnings, s3.open_uploads()) == ((), ())
    assert not control(s3)
    assert len(failed) == 16
    assert len(told) == UPLOADS
    for requests in told.values():
        assert requests[-2:] == [("abort_upload", ""), ("list_parts", "NoSuchUpload")]


def test_a_proof_that_is_never_allowed_is_told_and_the_names_stay(s3: MemoryStore) -> None:
    """ListParts of one upload is refused for good, and the listing of its key too: it is reported,
    the others are gone, and the next sweep has what it needs."""
    job = killed(s3)

    def forbid(request: Request) -> None:
        about = f"t/p=1/01-mcj{job.uuid}.csv"
        if request.verb in ("list_parts", "list_uploads", "abort_upload") and request.key == about:
            raise FAILURES["forbidden"]

    s3.before = forbid
    report = job.abort()
    assert "01-mcj" in report.warnings[0]
    assert [upload.key for upload in s3.open_uploads()] == [f"t/p=1/01-mcj{job.uuid}.csv"]
    s3.before = None
    assert mc.recover(DEST, job.id).state == "closed"
    assert s3.open_uploads() == ()
