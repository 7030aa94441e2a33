"""I6 and I8 where bytes do not tell objects apart: every empty `_SUCCESS` has the same ETag."""

from __future__ import annotations

from collections.abc import Callable

import orjson
import pytest

import magic_committer as mc
from magic_committer.commit.revert import delete_if_same
from magic_committer.errors import InvalidRequest, PermissionDenied, StoreError
from magic_committer.options import Mode
from magic_committer.protocol.plan import Plan
from magic_committer.runtime.components import Runtime
from magic_committer.stores.base import same_time
from magic_committer.stores.memory import MemoryStore, Request
from tests.promises.hands import DEST, At, job_of, raises, raising, visible
from tests.promises.machine import DAY, Machine


@pytest.mark.parametrize("version_id", [None, "", "null"])
def test_without_versions_only_the_same_is_deleted(s3: MemoryStore, version_id: str | None) -> None:
    """I6: stores name a missing version in three ways; none of them is a version to be deleted."""
    s3.put_object("t/a.csv", b"old")
    etag = s3.head("t/a.csv").etag
    s3.put_object("t/a.csv", b"another's")
    assert not delete_if_same(Runtime(s3), "t/a.csv", etag, version_id)
    assert s3.body("t/a.csv") == b"another's"


def test_a_paused_append_leaves_the_marker_of_a_later_job(machine: Machine) -> None:
    """I8: the empty `_SUCCESS` that its record names has been written anew by a later job."""
    s3 = machine.s3
    s3.put_object("t/_SUCCESS", b"")
    job = job_of({"a.csv": b"1"})

    def days_later() -> None:
        machine.later(3 * DAY)
        s3.put_object("t/_SUCCESS", b"")

    At(s3, "get t/_SUCCESS", days_later, nth=2)
    report = job.commit()
    assert s3.body("t/_SUCCESS") == b""
    assert any("later" in warning for warning in report.warnings)


@pytest.mark.parametrize("row", [["k"], ["k", "e", "5"], ["k", "e", True], ["k", "e", 1.0, 2], 5])
def test_a_row_of_a_plan_of_another_shape_is_refused(row: object) -> None:
    """A plan that cannot be trusted is not executed."""
    document = orjson.loads(Plan("j", "u", "n", 0, 0, ()).encode())
    damaged = orjson.dumps({**document, "deletes": [row]})
    raises(mc.FormatError, Plan.decode, damaged, "plan", match="deletes")


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [(5.0, 5.0, True), (5.0, 6.0, False), (5.7, 5.0, True), (5.0, 5.999, True), (6.0, 5.0, False)],
)
def test_times_are_compared_to_the_second(a: float, b: float, same: bool) -> None:
    """Some stores give fractions in listings and none in headers."""
    assert same_time(a, b) is same


@pytest.mark.parametrize("error", [InvalidRequest, PermissionDenied])
@pytest.mark.parametrize("theirs", [True, False])
@pytest.mark.parametrize("mode", ["replace", "replace_partitions"])
def test_what_the_store_does_not_show_is_compared_by_a_listing(
    s3: MemoryStore, error: type[StoreError], theirs: bool, mode: Mode
) -> None:
    """I6, I7: an old object of a customer's key goes if a listing shows the planned version."""
    s3.put_object("t/old.csv", b"old")
    job = job_of({"a.csv": b"1"}, mode=mode)
    refuse = raising("get|head t/old.csv", error)
    sent: list[str | None] = []

    def before(request: Request) -> None:
        if request.key != "t/old.csv":
            return
        if theirs and request.verb in ("get", "head"):
            s3.put_object("t/old.csv", b"theirs")
        refuse(request)
        if request.verb == "delete_one":
            sent.append(request.if_match)

    s3.before = before
    assert job.commit().outcome == "committed"
    assert (sent == []) is theirs
    assert None not in sent
    kept = {"t/old.csv": b"theirs"} if theirs else {}
    assert visible(s3) == {"t/a.csv": b"1", **kept}


def at_the_second_look(machine: Machine, deed: Callable[[], object]) -> At:
    """Somebody does this ten seconds later than a revert has looked at ``t/1.csv`` once more."""

    def later() -> None:
        machine.later(10)
        deed()

    return At(machine.s3, "head t/1.csv", later, after=True, nth=2)


def test_the_same_bytes_of_another_writer_survive_a_revert(machine: Machine) -> None:
    """I6: the ETag is the same, the time is not: the object stays."""
    s3 = machine.s3
    job = machine.job("committing")

    def by_parts() -> None:
        upload = s3.start_upload("t/1.csv")
        part = s3.put_part("t/1.csv", upload, 1, memoryview(b"1"))
        s3.complete_upload("t/1.csv", upload, [part], length=1, checksum=None)

    with at_the_second_look(machine, by_parts):
        assert mc.abort(DEST, job.id, revert=True).outcome == "reverted"
    assert visible(s3) == {"t/1.csv": b"1"}


def test_a_file_that_is_there_again_is_not_reverted(
    machine: Machine,
) -> None:
    """I3: a late Complete stores the job's own file once more: the job is not called reverted."""
    s3 = machine.s3
    job = machine.job("committing")
    metadata = s3.attributes("t/1.csv").metadata
    at_the_second_look(machine, lambda: s3.put_object("t/1.csv", b"1", metadata=metadata))
    with pytest.raises(mc.AbortIncomplete, match=r"t/1\.csv was not deleted"):
        mc.abort(DEST, job.id, revert=True)
    assert visible(s3) == {"t/1.csv": b"1"}
    assert mc.abort(DEST, job.id, revert=True).outcome == "reverted"
    assert visible(s3) == {}
