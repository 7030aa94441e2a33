"""``uploads abort`` while others move: what happens between the look, the answer and the abort."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

import magic_committer as mc
from magic_committer import _wiring
from magic_committer._runtime import no_progress
from magic_committer._wiring import register_store, unregister_store
from magic_committer.cli import exits
from magic_committer.errors import Unanswered
from magic_committer.hadoop.paths import Destination, unique_name
from magic_committer.maintenance.abort_uploads import Clearing, OpenUploads
from magic_committer.maintenance.uploads import Filters
from magic_committer.options import S3Options
from magic_committer.stores.base import UploadInfo, UploadPage
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.testing import PatientClock
from tests.cli.conftest import Command
from tests.costly import costly_store
from tests.hadoops import RELEASES, leave_job
from tests.promises.hands import DEST, At, Crash, crash, visible

HOUR, DAY = 3600.0, 86_400.0
GONE = "0" * 32
"""The UUID of a job that has no record."""


class Store(MemoryStore):
    """Its listing shows ``ghosts`` first, as if they were open."""

    ghosts: tuple[UploadInfo, ...] = ()

    def __init__(self, clock: PatientClock) -> None:
        super().__init__(clock=clock.now, page_keys=2)
        self.clock = clock

    def list_uploads(self, prefix: str) -> Iterator[UploadPage]:
        """As the port's."""
        shown = tuple(one for one in self.ghosts if one.key.startswith(prefix))
        yield UploadPage(shown, self.clock.now())
        yield from super().list_uploads(prefix)


@dataclass
class Shop:
    """A store, its clock, and the steps of a command, one by one."""

    clock: PatientClock = field(default_factory=PatientClock)
    store: Store = field(init=False)

    def __post_init__(self) -> None:
        self.store = Store(self.clock)

    def orphan(self, name: str) -> str:
        """An upload of a job without a record; its id."""
        return self.store.start_upload(f"t/{unique_name(name, GONE)}")

    def open(self) -> set[str]:
        """The ids of all open uploads."""
        return {one.upload_id for one in self.store.open_uploads()}

    def planned(self, *, hadoop: bool = False, sizes: bool = True) -> Clearing:
        """What was looked at, before anybody has answered the question."""
        runtime = _wiring.runtime_for("bucket", S3Options(), no_progress)
        found = OpenUploads(runtime, Destination("bucket", "t/"), Filters(HOUR), sizes=sizes)
        return Clearing(found, hadoop=hadoop)


@pytest.fixture
def shop() -> Iterator[Shop]:
    """The bucket ``bucket``, pages of two."""
    made = Shop()
    register_store(made.store, made.clock)
    yield made
    made.store.before = None
    unregister_store(made.store)


# Exactly what was shown ---------------------------------------------------------------------------


def test_what_grew_old_while_the_operator_thought_is_not_aborted(shop: Shop) -> None:
    """The answer was for what was counted: another upload that is old enough by now stays."""
    shown = shop.orphan("z.csv")
    shop.clock.ahead += HOUR / 2
    younger = shop.orphan("a.csv")
    shop.clock.ahead += HOUR / 2 + 60
    plan = shop.planned()
    assert plan.chosen.total() == 1
    shop.clock.ahead += HOUR
    told = [(cleared.action, cleared.found.upload_id) for cleared in plan.run()]
    assert (told, shop.open()) == ([("aborted", shown)], {younger})


@pytest.mark.parametrize("sizes", [True, False])
def test_what_has_ended_is_told_and_uses_up_nothing(shop: Shop, sizes: bool) -> None:
    """Uploads that a listing shows and that have ended are `gone`; all others that were counted are
    aborted, with sizes or without."""
    orphans = {shop.orphan(f"z{number}.csv") for number in range(3)}
    shop.store.ghosts = tuple(
        UploadInfo(f"t/{unique_name(f'a{number}.csv', GONE)}", f"ghost{number}", shop.clock.now())
        for number in range(3)
    )
    shop.clock.ahead += DAY
    plan = shop.planned(sizes=sizes)
    told: dict[str, set[str]] = {}
    for cleared in plan.run():
        told.setdefault(cleared.action, set()).add(cleared.found.upload_id)
    ghosts = {one.upload_id for one in shop.store.ghosts}
    assert told == {"aborted": orphans, "gone": ghosts}
    assert shop.open() == set()


def test_one_that_ends_between_the_question_and_its_abort_has_its_row(
    command: Command, shop: Shop
) -> None:
    """As many rows as were chosen: one of them says `gone`."""
    orphans = [shop.orphan(f"{number}.csv") for number in range(3)]
    shop.clock.ahead += DAY
    At(
        shop.store,
        lambda r: r.verb == "list_parts",
        lambda: shop.store.drop_upload(orphans[0]),
    )
    ran = command("uploads", "abort", DEST, "--yes", "--format", "json")
    actions = {row["upload_id"]: row["action"] for row in ran.json()["rows"]}
    assert actions == dict(zip(orphans, ("gone", "aborted", "aborted"), strict=True))
    assert ran.json()["summary"]["chosen"] == 3
    assert ran.code == exits.OK


@pytest.mark.parametrize("how", ["json", "jsonl"])
def test_a_listing_that_fails_half_way_hides_no_abort(
    command: Command, shop: Shop, how: str
) -> None:
    """The rows of what was aborted are printed all the same, then the error is told (48); the next
    run does the rest."""
    orphans = [shop.orphan(f"{number}.csv") for number in range(4)]
    shop.clock.ahead += DAY
    pages = 0

    def fail(request: Request) -> None:
        nonlocal pages
        pages += request.verb == "list_uploads" and request.key == "t/"
        if pages == 6:  # the second of the third listing: of the run
            raise Unanswered("gone away")

    shop.store.before = fail
    ran = command("uploads", "abort", DEST, "--yes", "--format", how)
    assert (ran.code, shop.open()) == (exits.NO_ANSWER, set(orphans[2:]))
    assert "gone away" in ran.err
    assert all(one in ran.out for one in orphans[:2])
    shop.store.before = None
    assert command("uploads", "abort", DEST, "--yes").code == exits.OK
    assert shop.open() == set()


# Owners that move ---------------------------------------------------------------------------------


def test_an_upload_that_begins_during_the_survey_keeps_its_job(
    command: Command, shop: Shop
) -> None:
    """A job that was taken for dead and begins an upload is not dead: it stays, with all of its
    uploads, and can commit."""
    job = mc.start(DEST, job_id="j")
    old = shop.store.start_upload(f"t/{unique_name('a.csv', job.uuid)}")
    shop.clock.ahead += 3 * DAY
    late: list[str] = []
    begins = At(
        shop.store,
        lambda r: r.verb == "list",
        lambda: late.append(shop.store.start_upload(f"t/{unique_name('b.csv', job.uuid)}")),
    )
    ran = command("uploads", "abort", DEST, "--yes")
    assert begins.done
    assert (ran.code, shop.open()) == (exits.OK, {old, *late})
    assert "1 of its 2 uploads are not meant" in ran.err
    assert mc.attach(DEST, "j").state == "running"
    job.abort()


@pytest.mark.parametrize("release", RELEASES)
def test_a_hadoop_job_that_is_adopted_meanwhile_keeps_its_uploads(shop: Shop, release: str) -> None:
    """Between the look and the abort it was adopted, and decided to commit: no upload is aborted,
    and recovery makes all its files visible."""
    hadoops = leave_job(shop.store, release)
    shop.clock.ahead += 3 * DAY
    plan = shop.planned(hadoop=True)
    assert plan.chosen == {"hadoop": len(hadoops.files)}
    mc.adopt(DEST, hadoops.id)
    At(shop.store, lambda r: r.verb == "complete_upload", crash)
    with pytest.raises(Crash):
        mc.attach(DEST, hadoops.id).commit()
    shop.store.before = None
    told = {(cleared.action, cleared.why) for cleared in plan.run()}
    assert told == {("left", "its job has been adopted meanwhile")}
    assert mc.recover(DEST, hadoops.id).outcome == "committed"
    assert visible(shop.store) == hadoops.files


@pytest.mark.parametrize("sizes", [(), ("--no-sizes",)])
@pytest.mark.parametrize("job_id", [None, "given"])
def test_a_listing_that_lags_behind_costs_no_object(
    command: Command, job_id: str | None, sizes: tuple[str, ...]
) -> None:
    """An upload that is shown, but was completed, is told as `gone` and not aborted, whether its
    job's record is closed or gone."""
    clock = PatientClock()
    with costly_store(clock) as s3:
        job = mc.start(DEST, job_id=job_id)
        s3.requests.clear()  # the proof of the store
        with job.task("1") as task, task.open("a.csv", unique=True) as f:
            f.write(b"1")
        job.commit()
        s3.lags = True
        clock.ahead += 3 * HOUR
        ran = command("uploads", "abort", DEST, "--yes", "--format", "json", *sizes)
        assert ran.code == exits.OK
        assert [row["action"] for row in ran.json()["rows"]] == ["gone"]
        assert s3.requests["abort_upload"] == 0
        assert list(visible(s3).values()) == [b"1"]
