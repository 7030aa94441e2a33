"""Whose an open upload is: read, never inferred; in doubt what protects it holds."""

from __future__ import annotations

import json

import pytest

import magic_committer as mc
from magic_committer.errors import InvalidRequest, PermissionDenied
from magic_committer.hadoop.paths import unique_name
from magic_committer.maintenance.uploads import Places
from magic_committer.protocol.record import JOB_METADATA
from magic_committer.runtime.components import Runtime
from tests.cli.shop import DAY, DEST, FOREIGN, GONE, LATER, YOUNG, Shop, put_pending
from tests.promises.hands import At, failing, raising

OURS = f"t/{unique_name('x.csv', GONE)}"
"""A key that says whose its upload is: of a job that has no record."""
PLACE = "t/__magic_job-{0}/job-{0}/00/tasks/{1}/__base"
"""Where an attempt's `.pending`s lie, by its job and its own name."""


def test_the_record_may_lie_in_any_directory_above(shop: Shop) -> None:
    """And a UUID that is not delimited as ours is nobody's."""
    job = mc.start(DEST, job_id="j")
    deep = shop.store.start_upload(f"t/a/b/{unique_name('x.csv', job.uuid)}")
    sparks = shop.store.start_upload(f"t/a/b/part-{job.uuid}.csv")
    assert shop.owners(f"{DEST}/a/b") == {deep: ("live", "j"), sparks: ("foreign", "")}
    away = shop.store.start_upload(f"u/{unique_name('x.csv', job.uuid)}")
    assert shop.owners("s3://bucket/u") == {away: ("orphan", "")}


def test_hadoops_jobs_are_told_in_both_layouts(shop: Shop) -> None:
    """What a `.pending` without a token names is Hadoop's, of 3.3 and 3.4, or of an adopted job."""
    ids = {layout: shop.store.start_upload(f"t/{layout}.orc") for layout in ("old", "new")}
    put_pending(shop.store, "t/__magic/job-old/tasks/a/__base", "t/old.orc", ids["old"])
    put_pending(shop.store, PLACE.format("new", "a"), "t/new.orc", ids["new"])
    assert shop.owners() == {ids["old"]: ("hadoop", "old"), ids["new"]: ("hadoop", "new")}
    for job in ids:
        mc.adopt(DEST, job, dead_after=0)
    assert shop.owners() == {ids["old"]: ("live", "old"), ids["new"]: ("live", "new")}
    shop.later(2 * DAY)
    assert shop.actions() == ["aborted"] * 2
    assert shop.open() == set()


def test_hadoops_uploads_go_when_nothing_of_their_job_changes(shop: Shop) -> None:
    """--hadoop takes them by the job's age, not only by their own: a slow job writes on."""
    upload = shop.store.start_upload("t/a.orc")
    shop.later(2 * DAY)
    put_pending(shop.store, PLACE.format("1", "a"), "t/a.orc", upload)
    assert shop.actions("--hadoop", *LATER) == []
    shop.later(2 * DAY)
    assert shop.actions(*LATER) == []
    assert shop.actions("--hadoop", *LATER) == ["aborted"]


def test_a_record_that_cannot_be_read_protects_all_below(shop: Shop) -> None:
    """Uploads with a UUID that is nowhere else are unknown, foreign ones may be that job's."""
    shop.store.put_object("t/__magic_job-j/_job.json", b'{"version": 99}')
    ours = shop.store.start_upload(OURS)
    chosen = shop.store.start_upload("t/chosen.csv")
    named = shop.store.start_upload("t/named.csv")
    put_pending(shop.store, PLACE.format("j", "a"), "t/named.csv", named)
    shop.later(9 * DAY)
    classes = {upload: one for upload, (one, _) in shop.owners().items()}
    assert classes == {ours: "unknown", chosen: "foreign", named: "unknown"}
    ran = shop.abort("--hadoop", *FOREIGN)
    assert (ran.code, len(shop.open())) == (0, 3)
    assert "Upgrade magic-committer" in ran.err


def test_a_directory_that_may_not_be_listed_may_hold_the_record(shop: Shop) -> None:
    """Without the right to look above the path nothing of ours is judged over."""
    upload = shop.store.start_upload(OURS)
    shop.later(9 * DAY)
    failing(shop.store, "list", "__magic", PermissionDenied("s3:ListBucket is not allowed"))
    assert shop.owners() == {upload: ("unknown", "")}
    ran = shop.abort()
    assert (ran.code, shop.open()) == (0, {upload})
    assert "s3:ListBucket is not allowed" in ran.err


def test_what_begins_while_records_are_read_is_not_judged(shop: Shop) -> None:
    """An upload that only the second listing shows is unknown: its job's record may be as new."""
    shop.store.start_upload("t/first.csv")
    late: list[str] = []
    At(shop.store, lambda r: r.verb == "list", lambda: late.append(shop.store.start_upload(OURS)))
    assert shop.owners()[late[0]] == ("unknown", "")


def test_a_pending_names_nothing_outside_its_destination(shop: Shop) -> None:
    """Else who can write into one directory could have others' uploads aborted."""
    theirs = shop.store.start_upload("u/theirs.csv")
    put_pending(shop.store, PLACE.format("j", "a"), "u/theirs.csv", theirs, uuid=GONE)
    shop.later(9 * DAY)
    assert shop.owners("s3://bucket") == {theirs: ("foreign", "")}


def test_of_two_owners_the_one_that_protects_holds(shop: Shop) -> None:
    """The live job, not litter; Hadoop's job, not a UUID, which is copied with a name."""
    job = mc.start(DEST, job_id="live")
    key = f"t/{unique_name('x.csv', job.uuid)}"
    upload = shop.store.start_upload(key)
    put_pending(shop.store, PLACE.format("g", "a"), key, upload, uuid=GONE)
    copied = shop.store.start_upload(OURS)
    shop.later(2 * YOUNG)
    put_pending(shop.store, PLACE.format("h", "a"), OURS, copied)
    assert shop.owners() == {upload: ("live", "live"), copied: ("hadoop", "h")}
    for word in ((), ("--hadoop",)):
        assert shop.actions(*word, *LATER) == []


@pytest.mark.parametrize("litter", [False, True])
def test_what_cannot_be_read_of_a_job_may_name_anything(shop: Shop, litter: bool) -> None:
    """A broken `.pending` may be a foreign upload's, also beside litter of ours: it is left."""
    chosen = shop.store.start_upload("t/chosen.csv")
    if litter:
        other = shop.store.start_upload("t/other.csv")
        put_pending(shop.store, PLACE.format("g", "a"), "t/other.csv", other, uuid=GONE)
    shop.store.put_object(f"{PLACE.format('g', 'b')}/x.pending", b"{")
    shop.later(9 * DAY)
    ran = shop.abort(*FOREIGN)
    assert shop.open() == {chosen}
    assert litter or (ran.code, "not all that it names is known" in ran.err) == (0, True)


def test_an_orphan_that_was_completed_is_not_aborted(shop: Shop) -> None:
    """On some stores its abort would cost the object, whose token tells."""
    upload = shop.store.start_upload("t/a.csv")
    shop.store.ghosts = shop.store.open_uploads()
    token = f"{GONE}.a.1"
    extra = {"magic-committer.token": token}
    put_pending(shop.store, PLACE.format("g", "a"), "t/a.csv", upload, uuid=GONE, extra=extra)
    shop.store.drop_upload(upload)
    shop.store.put_object("t/a.csv", b"abc", metadata={"magic-committer-token": token})
    shop.later(9 * DAY)
    (row,) = shop.rows("abort", DEST, "--yes", "--no-sizes")
    assert (row["action"], "it was completed" in row["note"]) == ("gone", True)
    assert shop.store.requests["abort_upload"] == 0


def test_of_two_uploads_of_one_key_the_named_one_is_ours(shop: Shop) -> None:
    """What a job without a record left names one by its id; the other is foreign, and stays."""
    ours, theirs = (shop.store.start_upload("t/a.csv") for _ in range(2))
    put_pending(shop.store, PLACE.format("g", "a"), "t/a.csv", ours, uuid=GONE)
    shop.later(9 * DAY)
    classes = {upload: one for upload, (one, _) in shop.owners().items()}
    assert classes == {ours: "orphan", theirs: "foreign"}
    assert (shop.actions(), shop.open()) == (["aborted"], {theirs})


def test_an_upload_without_an_age_goes_only_where_every_age_will_do(shop: Shop) -> None:
    """One with a customer's key, of which the store lists no parts, goes like any other."""
    shop.orphans(2)
    ageless, secret = shop.store.open_uploads()
    shop.store.ageless = {ageless.key}
    shop.store.before = raising(
        lambda r: (r.verb, r.key) == ("list_parts", secret.key),
        InvalidRequest("a key is needed", code="InvalidRequest"),
    )
    shop.later(2 * DAY)
    assert {row["upload_id"] for row in shop.rows("list", DEST) if row["age"] is None} == {
        ageless.upload_id
    }
    assert (shop.actions(), shop.open()) == (["aborted"], {ageless.upload_id})
    assert (shop.actions("--older-than", "0"), shop.open()) == (["aborted"], set())


def test_places_tell_whether_a_job_is_over(shop: Shop) -> None:
    """Over: closed, or no record at or above; not over: any other state; None: cannot be told."""
    job = mc.start(DEST, job_id="j")
    places = Places(Runtime(shop.store), in_flight=4)
    assert places.is_over("t/a/", job.uuid) is False
    assert places.is_over("t/a/", GONE) is True
    job.abort()
    assert Places(Runtime(shop.store), in_flight=4).is_over("t/a/", job.uuid) is True
    shop.store.put_object("t/a/__magic_job-j/_job.json", b"{}")
    broken = Places(Runtime(shop.store), in_flight=4)
    assert broken.is_over("t/a/", GONE) is None
    assert broken.is_over("t/a/", job.uuid) is True
    assert len(broken.problems) == 1


def test_each_record_is_read_once(shop: Shop) -> None:
    """However many directories have uploads."""
    jobs, directories = 200, 20
    mc.start(DEST, job_id="first").abort()
    closed = json.loads(shop.store.body("t/__magic_job-first/_job.json"))
    for number in range(1, jobs):
        uuid = f"{number:032x}"
        record = json.dumps({**closed, "id": f"run-{number}", "uuid": uuid}).encode()
        where = f"t/__magic_job-run-{number}/_job.json"
        shop.store.put_object(where, record, metadata={JOB_METADATA: uuid})
    for number in range(directories):
        shop.store.start_upload(f"t/d={number}/x.bin")
    shop.store._bucket.page_keys = 1000
    shop.store.requests.clear()
    assert {owner for owner, _ in shop.owners().values()} == {"foreign"}
    assert shop.store.requests == {
        "list_uploads": 2,
        "get": jobs,
        "list": len(("", "t/")) + directories + jobs,
        "list_parts": directories,  # the sizes that `list` tells
    }
