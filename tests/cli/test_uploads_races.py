"""``uploads abort`` while others move: what happens between the look, the answer and the abort; by
many requests at once and by single verbs alike."""

from __future__ import annotations

from collections import defaultdict
from contextlib import closing

import pytest

import magic_committer as mc
from magic_committer.cli import exits
from magic_committer.commit.requests import LOOK_SECONDS_MAX
from magic_committer.errors import PermissionDenied, Unanswered
from magic_committer.hadoop.paths import unique_name
from magic_committer.runtime.components import Progress
from magic_committer.stores.base import Part
from magic_committer.stores.memory import Request
from tests.cli.shop import DAY, DEST, YOUNG, Shop, planned
from tests.hadoops import RELEASES, leave_job
from tests.promises.hands import At, Nth, dies_at, visible


@pytest.mark.parametrize("how", ["json", "jsonl"])
def test_a_listing_that_fails_half_way_hides_no_abort(shop: Shop, how: str) -> None:
    """The rows of what was aborted are printed, then the error; the next run does the rest."""
    shop.store._bucket.page_keys = 2
    orphans = shop.orphans(4)
    shop.later(DAY)
    page = Nth(6)  # the second of the third listing: of the run
    At(
        shop.store,
        lambda r: (r.verb, r.key) == ("list_uploads", "t/") and page(r),
        Unanswered("gone away"),
    )
    ran = shop.abort("--format", how)
    assert (ran.code, shop.open()) == (exits.NO_ANSWER, set(orphans[2:]))
    assert "gone away" in ran.err
    assert all(one in ran.out for one in orphans[:2])
    assert shop.abort().code == exits.OK
    assert shop.open() == set()


@pytest.fixture(params=[False, True], ids=["verbs", "at_once"])
def forty(request: pytest.FixtureRequest, shop: Shop) -> dict[str, str]:
    """Forty orphans with a part each, a day old, on a store that takes many requests from one
    thread, or not: their ids by key."""
    shop.store.at_once = request.param
    shop.orphans(40)
    uploads = {one.key: one.upload_id for one in shop.store.open_uploads()}
    for key, upload_id in uploads.items():
        shop.store.put_part(key, upload_id, 1, memoryview(b"x"))
    shop.later(DAY)
    return uploads


def test_every_answer_is_the_same_by_verbs_and_at_once(shop: Shop, forty: dict[str, str]) -> None:
    """Each of forty is told for what became of it; the progress counts each once."""
    noted: list[Progress] = []
    store, keys = shop.store, list(forty)
    plan = planned(DAY / 2, sizes=False, progress=noted.append)
    store.drop_upload(forty[keys[3]])
    part = store.list_parts(keys[7], forty[keys[7]])[0]
    store.complete_upload(keys[7], forty[keys[7]], [Part(1, part.etag, 1)])
    store.young, store.unseen, store.lags = {keys[11]}, {keys[13]}, True
    lost: list[str] = []

    def refuse(request: Request) -> None:
        if (request.verb, request.key) == ("abort_upload", keys[17]):
            raise PermissionDenied("no abort", status=403, code="AccessDenied")
        if (request.verb, request.key) == ("list_uploads", keys[19]):
            raise PermissionDenied("no listing", status=403, code="AccessDenied")

    def lose(request: Request, answer: object) -> None:
        if (request.verb, request.key) == ("abort_upload", keys[23]) and not lost:
            lost.append(request.key)
            raise Unanswered("the connection was reset")

    store.before, store.after = refuse, lose
    noted.clear()
    told = {one.found.key: (one.action, one.why) for one in plan.run()}
    store.before = store.after = None
    odd = {
        keys[7]: ("gone", "a listing shows it, and its parts are gone"),
        keys[11]: ("left", "it is younger than 12 h by now"),
        keys[13]: ("left", "no listing shows it, but its parts are there"),
        keys[17]: ("left", "no abort"),
        keys[19]: ("left", "no listing"),
    }
    assert told == {key: odd.get(key, ("aborted", "")) for key in keys if key != keys[3]}
    still_open = {one.key for one in store.open_uploads()}
    assert still_open == {keys[11], keys[13], keys[17], keys[19]}
    assert (store.keys("t/"), store.lost) == ((keys[7],), [])
    assert [one.done for one in noted if one.phase == "abort"] == list(range(1, 40))


def test_what_is_completed_while_the_caller_pauses_is_not_aborted(
    shop: Shop, forty: dict[str, str]
) -> None:
    """No abort follows from a look that is older than two seconds: it is gone, and visible."""
    store, told, others = shop.store, dict[str, str](), dict[str, str]()
    with closing(planned(DAY / 2, sizes=False).run()) as cleared:  # type: ignore[type-var]  # a generator
        for one in cleared:
            told[one.found.key] = one.action
            if len(told) > 1:
                continue
            others = {up.key: up.upload_id for up in store.open_uploads()}
            for key, upload_id in others.items():
                store.complete_upload(key, upload_id, store.list_parts(key, upload_id))
            shop.later(LOOK_SECONDS_MAX + 1)
    assert (len(told), len(others) > 30) == (len(forty), True)
    assert {told[key] for key in others} == {"gone"}
    assert (store.lost, set(store.keys("t/"))) == ([], set(others))


def test_an_abort_that_takes_effect_late_counts_as_ours(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upload that has ended after all, when it is looked for again, is told as aborted."""
    (upload,) = shop.orphans(1)
    shop.later(2 * YOUNG)
    shop.store.deaf, shop.store.at_once = 99, True
    sleep = shop.clock.sleep

    def slow(seconds: float) -> None:
        sleep(seconds + LOOK_SECONDS_MAX + 1)  # so the look is old, and all is done again
        shop.store.drop_upload(upload)

    monkeypatch.setattr(shop.clock, "sleep", slow)
    assert (shop.actions(), shop.open()) == (["aborted"], set())


def test_each_abort_has_its_own_look_right_before_it(shop: Shop, forty: dict[str, str]) -> None:
    """Listing of its key, parts, abort, parts again: at once as by verbs."""
    plan, seen = planned(DAY / 2, sizes=False), defaultdict[str, list[str]](list)
    shop.store.after = lambda request, answer: seen[request.key].append(request.verb)
    assert {one.action for one in plan.run()} == {"aborted"}
    right = ["list_uploads", "list_parts", "abort_upload", "list_parts"]
    assert {key: seen[key] for key in forty} == dict.fromkeys(forty, right)


def test_an_upload_that_begins_during_the_survey_keeps_its_job(shop: Shop) -> None:
    """A job that begins an upload is not dead: it stays with all its uploads, and can commit."""
    job = mc.start(DEST, job_id="j")
    names = [f"t/{unique_name(name, job.uuid)}" for name in ("a.csv", "b.csv")]
    old = shop.store.start_upload(names[0])
    shop.later(3 * DAY)
    late: list[str] = []
    begins = At(shop.store, "list", lambda: late.append(shop.store.start_upload(names[1])))
    ran = shop.abort()
    assert begins.done
    assert (ran.code, shop.open()) == (exits.OK, {old, *late})
    assert "1 of its 2 uploads are not meant" in ran.err
    assert mc.attach(DEST, "j").state == "running"
    job.abort()


@pytest.mark.parametrize("release", RELEASES)
def test_a_hadoop_job_that_is_adopted_meanwhile_keeps_its_uploads(shop: Shop, release: str) -> None:
    """It has decided to commit: recovery makes all its files visible."""
    hadoops = leave_job(shop.store, release)
    shop.later(3 * DAY)
    plan = planned(hadoop=True)
    assert plan.chosen == {"hadoop": len(hadoops.files)}
    mc.adopt(DEST, hadoops.id)
    adopted = mc.attach(DEST, hadoops.id)
    dies_at(shop.store, lambda r: r.verb == "complete_upload", adopted.commit)
    told = {(cleared.action, cleared.why) for cleared in plan.run()}
    assert told == {("left", "its job has been adopted meanwhile")}
    assert mc.recover(DEST, hadoops.id).outcome == "committed"
    assert visible(shop.store) == hadoops.files
