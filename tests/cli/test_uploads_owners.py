"""Whose an open upload is: read, never inferred; in doubt what protects it holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

import magic_committer as mc
from magic_committer._runtime import Runtime
from magic_committer._wiring import register_store, unregister_store
from magic_committer.errors import PermissionDenied
from magic_committer.hadoop.formats import UploadEtag, encode_pending, new_pending
from magic_committer.hadoop.paths import java_uri, unique_name
from magic_committer.maintenance import api
from magic_committer.maintenance.uploads import Places
from magic_committer.protocol.record import JOB_METADATA
from magic_committer.stores.base import UploadPage
from magic_committer.stores.memory import MemoryStore
from magic_committer.testing import PatientClock
from tests.cli.conftest import Command
from tests.promises.hands import At, failing

DAY = 86_400.0
GONE = "0" * 32
T = "s3://bucket/t"
LATER = ("--older-than", "1h", "--yes")


class Store(MemoryStore):
    """Its listing shows ``ghosts`` too, as if they were still open."""

    ghosts: UploadPage | None = None

    def list_uploads(self, prefix: str) -> Iterator[UploadPage]:
        """As the port's."""
        yield from super().list_uploads(prefix)
        if self.ghosts is not None:
            yield self.ghosts


@pytest.fixture
def store(clock: PatientClock) -> Iterator[Store]:
    """The bucket ``bucket``."""
    made = Store(clock=clock.now)
    register_store(made, clock)
    yield made
    unregister_store(made)


def told(command: Command, path: str = T) -> dict[str, tuple[str, str]]:
    """Class and job of each upload, by id."""
    ran = command("uploads", "list", path, "--format", "json")
    assert ran.code == 0, ran.err
    return {row["upload_id"]: (row["class"], row["job"]) for row in ran.json()["rows"]}


def put_pending(
    store: MemoryStore, place: str, key: str, upload_id: str, *, uuid: str = "", extra: str = ""
) -> None:
    """A `.pending` at ``place`` that names an upload, with a job's token or without."""
    pending = new_pending(
        uri=java_uri("bucket", key), upload_id=upload_id, bucket="bucket", destination_key=key,
        created_ms=0, etags=(UploadEtag('"900150983cd24fb0d6963f7d28e17f72"', None, None),),
        length=3, extra_data={"magic-committer.token": extra} if extra else {}, task_id="t",
    )  # fmt: skip
    metadata = {JOB_METADATA: uuid} if uuid else {}
    store.put_object(f"{place}/x.pending", encode_pending(pending), metadata=metadata)


def test_the_record_may_lie_in_any_directory_above(command: Command, store: Store) -> None:
    """A job's uploads are its own in partitions below, and looked at from there; a UUID that is
    not delimited as ours is nobody's."""
    job = mc.start(T, job_id="j")
    deep = store.start_upload(f"t/a/b/{unique_name('x.csv', job.uuid)}")
    sparks = store.start_upload(f"t/a/b/part-{job.uuid}.csv")
    assert told(command, f"{T}/a/b") == {deep: ("live", "j"), sparks: ("foreign", "")}
    away = store.start_upload(f"u/{unique_name('x.csv', job.uuid)}")
    assert told(command, "s3://bucket/u") == {away: ("orphan", "")}


def test_hadoops_jobs_are_told_in_both_layouts(command: Command, store: Store) -> None:
    """A `.pending` without a token and without a record above it is Hadoop's, of 3.3 and 3.4."""
    ids = {layout: store.start_upload(f"t/{layout}.orc") for layout in ("old", "new")}
    put_pending(store, "t/__magic/job-job_1/tasks/attempt_1/__base", "t/old.orc", ids["old"])
    put_pending(store, "t/__magic_job-2/job-2/01/tasks/a/__base", "t/new.orc", ids["new"])
    assert told(command) == {ids["old"]: ("hadoop", "job_1"), ids["new"]: ("hadoop", "2")}


def test_an_adopted_job_is_ours(command: Command, store: Store, clock: PatientClock) -> None:
    """With a record, what a Hadoop job's control objects name without a token is that job's, in
    either layout."""
    ids = {job: store.start_upload(f"t/{job}.orc") for job in ("old", "new")}
    put_pending(store, "t/__magic/job-old/tasks/a/__base", "t/old.orc", ids["old"])
    put_pending(store, "t/__magic_job-new/job-new/00/tasks/a/__base", "t/new.orc", ids["new"])
    assert {one[0] for one in told(command).values()} == {"hadoop"}
    for job in ids:
        api.adopt(T, job, dead_after=0)
    assert told(command) == {ids["old"]: ("live", "old"), ids["new"]: ("live", "new")}
    clock.ahead += 2 * DAY
    assert command("uploads", "abort", T, "--yes").code == 0
    assert store.open_uploads() == ()


def test_hadoops_uploads_go_when_nothing_of_their_job_changes(
    command: Command, store: Store, clock: PatientClock
) -> None:
    """--hadoop takes them by the job's age, not only by their own: a slow job writes on."""
    upload = store.start_upload("t/a.orc")
    clock.ahead += 2 * DAY
    put_pending(store, "t/__magic_job-1/job-1/00/tasks/a/__base", "t/a.orc", upload)
    assert command("uploads", "abort", T, "--hadoop", *LATER).code == 0
    assert len(store.open_uploads()) == 1
    clock.ahead += 2 * DAY
    assert command("uploads", "abort", T, *LATER).code == 0
    assert len(store.open_uploads()) == 1
    assert command("uploads", "abort", T, "--hadoop", *LATER).code == 0
    assert store.open_uploads() == ()


def test_a_record_that_cannot_be_read_protects_all_below(
    command: Command, store: Store, clock: PatientClock
) -> None:
    """Of a newer version: uploads with a UUID that is nowhere else are unknown, and foreign ones
    may be that job's; nothing goes."""
    store.put_object("t/__magic_job-j/_job.json", b'{"version": 99}')
    ours = store.start_upload(f"t/{unique_name('x.csv', GONE)}")
    chosen = store.start_upload("t/chosen.csv")
    named = store.start_upload("t/named.csv")
    put_pending(store, "t/__magic_job-j/job-j/00/tasks/a/__base", "t/named.csv", named)
    clock.ahead += 9 * DAY
    classes = {key: one[0] for key, one in told(command).items()}
    assert classes == {ours: "unknown", chosen: "foreign", named: "unknown"}
    ran = command("uploads", "abort", T, "--foreign", "--hadoop", *LATER)
    assert (ran.code, len(store.open_uploads())) == (0, 3)
    assert "Upgrade magic-committer" in ran.err


def test_a_directory_that_may_not_be_listed_may_hold_the_record(
    command: Command, store: Store, clock: PatientClock
) -> None:
    """Without the right to look above the path nothing of ours is judged over."""
    upload = store.start_upload(f"t/{unique_name('x.csv', GONE)}")
    clock.ahead += 9 * DAY

    failing(store, "list", "__magic", PermissionDenied("s3:ListBucket is not allowed"))
    assert told(command) == {upload: ("unknown", "")}
    ran = command("uploads", "abort", T, "--yes")
    assert (ran.code, len(store.open_uploads())) == (0, 1)
    assert "s3:ListBucket is not allowed" in ran.err


def test_what_begins_while_records_are_read_is_not_judged(command: Command, store: Store) -> None:
    """An upload that only the second listing shows is unknown: its job's record may be as new."""
    store.start_upload("t/first.csv")
    late: list[str] = []

    def begin() -> None:
        late.append(store.start_upload(f"t/{unique_name('late.csv', GONE)}"))

    At(store, lambda r: r.verb == "list", begin)
    classes = told(command)
    assert classes[late[0]] == ("unknown", "")


def test_a_pending_names_nothing_outside_its_destination(
    command: Command, store: Store, clock: PatientClock
) -> None:
    """Else who can write into one directory could have others' uploads aborted."""
    theirs = store.start_upload("u/theirs.csv")
    put_pending(store, "t/__magic_job-j/job-j/00/tasks/a/__base", "u/theirs.csv", theirs, uuid=GONE)
    clock.ahead += 9 * DAY
    assert told(command, "s3://bucket") == {theirs: ("foreign", "")}


def test_of_two_owners_the_one_that_lives_holds(
    command: Command, store: Store, clock: PatientClock
) -> None:
    """An upload that a dead job's litter names, too, is the live job's."""
    job = mc.start(T, job_id="live")
    upload = store.start_upload(f"t/{unique_name('x.csv', job.uuid)}")
    (key,) = (one.key for one in store.open_uploads())
    put_pending(store, "t/__magic_job-g/job-g/00/tasks/a/__base", key, upload, uuid=GONE)
    assert told(command) == {upload: ("live", "live")}


def test_what_cannot_be_read_of_a_job_may_name_anything(
    command: Command, store: Store, clock: PatientClock
) -> None:
    """A broken `.pending` may be a foreign upload's: it is left, and it is said why."""
    chosen = store.start_upload("t/chosen.csv")
    store.put_object("t/__magic_job-1/job-1/00/tasks/a/__base/x.pending", b"{")
    clock.ahead += 9 * DAY
    ran = command("uploads", "abort", T, "--foreign", *LATER)
    assert (ran.code, {one.upload_id for one in store.open_uploads()}) == (0, {chosen})
    assert "not all that it names is known" in ran.err


def test_an_orphan_that_was_completed_is_not_aborted(
    command: Command, store: Store, clock: PatientClock
) -> None:
    """A listing may show an upload that is completed; aborting it costs the object on some stores:
    the object's token tells."""
    upload = store.start_upload("t/a.csv")
    (page,) = store.list_uploads("t/")
    put_pending(
        store, "t/__magic_job-g/job-g/00/tasks/a/__base", "t/a.csv", upload,
        uuid=GONE, extra=f"{GONE}.a.1",
    )  # fmt: skip
    store.drop_upload(upload)
    store.put_object("t/a.csv", b"abc", metadata={"magic-committer-token": f"{GONE}.a.1"})
    clock.ahead += 9 * DAY
    store.ghosts = replace(page, seen_at=clock.now())
    ran = command("uploads", "abort", T, "--yes", "--no-sizes", "--format", "json")
    assert ran.code == 0
    (row,) = ran.json()["rows"]
    assert row["action"] == "gone"
    assert "it was completed" in row["note"]
    assert store.requests["abort_upload"] == 0


def test_places_tell_whether_a_job_is_over(store: Store) -> None:
    """Over: closed, or no record at or above; not over: any other state; None: cannot be told."""
    job = mc.start(T, job_id="j")
    places = Places(Runtime(store), in_flight=4)
    assert places.is_over("t/a/", job.uuid) is False
    assert places.is_over("t/a/", GONE) is True
    job.abort()
    assert Places(Runtime(store), in_flight=4).is_over("t/a/", job.uuid) is True
    store.put_object("t/a/__magic_job-j/_job.json", b"{}")
    broken = Places(Runtime(store), in_flight=4)
    assert broken.is_over("t/a/", GONE) is None
    assert broken.is_over("t/a/", job.uuid) is True
    assert len(broken.problems) == 1


def test_a_live_hadoop_job_may_write_a_name_of_an_old_job_of_ours(
    command: Command, store: Store, clock: PatientClock
) -> None:
    """A name may be copied with its file; what Hadoop's own control object says of an upload holds
    against it: it is Hadoop's, and goes on the operator's word only, when its job is old."""
    key = f"t/{unique_name('part-0.csv', GONE)}"
    upload = store.start_upload(key)
    clock.ahead += 2 * 3600
    put_pending(store, "t/__magic_job-h/job-h/00/tasks/a/__base", key, upload)
    assert told(command) == {upload: ("hadoop", "h")}
    for word in ((), ("--hadoop",)):
        assert command("uploads", "abort", T, *word, *LATER).code == 0
        assert [one.upload_id for one in store.open_uploads()] == [upload]


def test_litter_of_ours_hides_nothing_that_cannot_be_read(
    command: Command, store: Store, clock: PatientClock
) -> None:
    """In a directory without a record, beside a `.pending` of ours, an unreadable one may name any
    upload there: a foreign one stays."""
    chosen = store.start_upload("t/chosen.csv")
    other = store.start_upload("t/other.csv")
    place = "t/__magic_job-g/job-g/00/tasks"
    put_pending(store, f"{place}/a/__base", "t/other.csv", other, uuid=GONE)
    store.put_object(f"{place}/b/__base/x.pending", b"{")
    clock.ahead += 9 * DAY
    ran = command("uploads", "abort", T, "--foreign", *LATER)
    assert ran.code == 0
    assert [one.upload_id for one in store.open_uploads()] == [chosen]


def test_each_record_is_read_once(command: Command, store: Store) -> None:
    """However many directories have uploads: two listings of the uploads, one GET for each record,
    one listing for each directory at or above an upload, and for each job's directory."""
    jobs, directories = 200, 20
    mc.start(T, job_id="first").abort()
    closed = json.loads(store.body("t/__magic_job-first/_job.json"))
    for number in range(1, jobs):
        uuid = f"{number:032x}"
        record = json.dumps({**closed, "id": f"run-{number}", "uuid": uuid}).encode()
        where = f"t/__magic_job-run-{number}/_job.json"
        store.put_object(where, record, metadata={JOB_METADATA: uuid})
    for number in range(directories):
        store.start_upload(f"t/d={number}/x.bin")
    store.requests.clear()
    assert {owner for owner, _ in told(command).values()} == {"foreign"}
    assert store.requests == {
        "list_uploads": 2,
        "get": jobs,
        "list": len(("", "t/")) + directories + jobs,
        "list_parts": directories,  # the sizes that `list` tells
    }
