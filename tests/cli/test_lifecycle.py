"""``lifecycle``: one rule of ours is merged into what is there, and nothing else changes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import magic_committer as mc
from magic_committer.errors import FormatError, NotSupported, OptionError
from magic_committer.maintenance.lifecycle import (
    RULE_ID,
    Configuration,
    abort_days,
    covering,
    merge,
    rule_id,
    rules_of,
    same,
)
from magic_committer.runtime.wiring import bucket_settings, register_store, unregister_store
from magic_committer.stores.memory import MemoryStore
from magic_committer.stores.s3.lifecycle import S3Lifecycle
from magic_committer.testing import PatientClock
from tests.cli.conftest import Command, lead
from tests.servers import (
    HurriedClock,
    Reply,
    ScriptedServer,
    error,
    moto_options,
    moto_server,
    scripted_server,
)

ABORT = "AbortIncompleteMultipartUpload"
ENSURE = ("lifecycle", "ensure", "bucket", "--days", 7)


class Bucket(MemoryStore):
    """A bucket with a lifecycle. ``then``: what somebody else does right after a write."""

    def __init__(self) -> None:
        self.time = PatientClock()
        super().__init__("bucket", clock=self.time.now)
        self.configuration: dict[str, Any] = {}
        self.writes = 0
        self.then: Callable[[], None] = lambda: None

    def have(self, *rules: dict[str, Any], **beside: Any) -> None:
        self.configuration = {"Rules": list(rules), **beside}

    def lifecycle(self) -> Mapping[str, Any]:
        return copy.deepcopy(self.configuration)

    def put_lifecycle(self, configuration: Mapping[str, Any]) -> None:
        self.writes += 1
        self.configuration = copy.deepcopy(dict(configuration))
        self.then()


def aborting(days: int, **changes: Any) -> dict[str, Any]:
    """Somebody's rule that aborts uploads; a change to ``...`` takes a field away."""
    rule = {
        "ID": "theirs", "Status": "Enabled", "Filter": {"Prefix": ""},
        ABORT: {"DaysAfterInitiation": days},
    } | changes  # fmt: skip
    return {name: value for name, value in rule.items() if value is not ...}


VALUE = {"Key": "k", "Value": "v"}
EXPIRING: dict[str, Any] = {
    "ID": "old logs", "Status": "Enabled", "Filter": {"And": {"Prefix": "logs/", "Tags": [VALUE]}},
    "Expiration": {"Days": 30},
}  # fmt: skip
LEGACY: dict[str, Any] = {
    "ID": "older than filters", "Status": "Disabled", "Prefix": "tmp/",
    "Expiration": {"Date": datetime(2030, 1, 1, tzinfo=UTC)},
    "Transitions": [{"Days": 3, "StorageClass": "GLACIER"}],
}  # fmt: skip


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    """A bucket behind the command line, without rules."""
    bucket = Bucket()
    register_store(bucket, bucket.time)
    yield bucket
    unregister_store(bucket)


PREFIXES = st.sampled_from(["", "t/", "t/x/", "ü b/", "other/"])
FILTERS = st.one_of(
    PREFIXES.map(lambda prefix: {"Prefix": prefix}),
    PREFIXES.map(lambda prefix: {"And": {"Prefix": prefix}}),
    st.sampled_from(
        [{}, {"Tag": VALUE}, {"And": {"Prefix": "t/", "Tags": [VALUE]}},
         {"ObjectSizeGreaterThan": 5}]
    ),
)  # fmt: skip
REACHES = st.one_of(
    FILTERS.map(lambda one: {"Filter": one}), PREFIXES.map(lambda prefix: {"Prefix": prefix})
)
NAMES = st.sampled_from([RULE_ID, rule_id("t/"), f"{RULE_ID}-2", "theirs"])
RULES = st.builds(
    lambda named, status, reach, deeds: {**named, "Status": status, **reach, **deeds},
    st.one_of(st.just({}), NAMES.map(lambda name: {"ID": name})),
    st.sampled_from(["Enabled", "Disabled"]),
    REACHES,
    st.fixed_dictionaries(
        {},
        optional={
            ABORT: st.integers(1, 9).map(lambda days: {"DaysAfterInitiation": days}),
            "Expiration": st.just({"Days": 30}),
            "NewThing": st.just({"deep": [1]}),
        },
    ),
)
CONFIGURATIONS = st.fixed_dictionaries(
    {}, optional={"Rules": st.lists(RULES, max_size=6), "TransitionDefault": st.just("varies")}
)


@given(CONFIGURATIONS, PREFIXES, st.integers(1, 9))
@example({}, "", 7)
@example({"Rules": [LEGACY, EXPIRING]}, "t/", 7)
def test_all_other_rules_are_kept_as_they_are(
    before: Configuration, prefix: str, days: int
) -> None:
    """At most one rule comes, or ours changes; the second time nothing is needed."""
    given_ = copy.deepcopy(before)
    merged = merge(before, prefix, days)
    assert before == given_
    old, new = rules_of(before), rules_of(merged.configuration)
    assert {**merged.configuration, "Rules": 0} == {**before, "Rules": 0}
    if merged.change == "nothing":
        assert merged.configuration is before
    elif merged.change == "added":
        assert new[:-1] == old
        assert all(a is b for a, b in zip(new, old, strict=False))
        assert [rule.get("ID") for rule in old].count(new[-1]["ID"]) == 0
    else:
        (changed,) = [n for n, (a, b) in enumerate(zip(old, new, strict=True)) if a is not b]
        assert old[changed]["ID"].startswith(rule_id(prefix))
        assert set(old[changed]) <= {"ID", "Status", "Filter", "Prefix", ABORT}
    assert covering(merged.configuration, prefix, days) is not None
    assert abort_days(merged.rule) is not None
    assert merge(merged.configuration, prefix, days).change == "nothing"


@pytest.mark.parametrize(
    ("rule", "covers"),
    [
        (aborting(7), True),
        (aborting(8), False),
        (aborting(7, Status="Disabled"), False),
        (aborting(7, Filter={}), True),
        (aborting(7, Filter=..., Prefix="t/"), True),
        (aborting(7, Filter={"Prefix": "t"}), True),
        (aborting(7, Filter={"Prefix": "t/deeper/"}), False),
        (aborting(7, Filter={"And": {"Prefix": "t/"}}), True),
        (aborting(7, Filter={"And": {"Prefix": "t/", "ObjectSizeLessThan": 5}}), False),
        (aborting(7, Filter={"Tag": VALUE}), False),
        (EXPIRING, False),
    ],
)
def test_what_covers(rule: dict[str, Any], covers: bool) -> None:
    """A rule counts that is enabled, soon enough, and goes by a prefix of ours alone."""
    merged = merge({"Rules": [rule]}, "t/", 7)
    assert (merged.change == "nothing") == covers


def test_our_rule_is_lengthened_too() -> None:
    """One of ours that somebody has added to is theirs, and stays."""
    more = merge(merge({}, "t/", 1).configuration, "t/", 7)
    assert (more.change, abort_days(more.rule)) == ("changed", 7)
    assert len(rules_of(more.configuration)) == 1
    theirs = {**merge({}, "t/", 9).rule, "Expiration": {"Days": 3}}
    beside = merge({"Rules": [theirs]}, "t/", 7)
    assert rules_of(beside.configuration)[0] == theirs
    assert beside.rule["ID"] == f"{rule_id('t/')}-2"
    assert merge(beside.configuration, "t/", 5).change == "changed"


def test_the_old_form_is_kept_where_rules_have_it() -> None:
    """S3 takes no mixture: beside rules with a bare prefix ours has one."""
    assert merge({"Rules": [LEGACY]}, "t/", 7).rule["Prefix"] == "t/"
    assert "Filter" not in merge({"Rules": [LEGACY]}, "t/", 7).rule
    assert merge({"Rules": [LEGACY, EXPIRING]}, "t/", 7).rule["Filter"] == {"Prefix": "t/"}


@given(st.text(max_size=300))
def test_every_prefix_gives_an_id_that_stores_take(prefix: str) -> None:
    """At most 255 plain characters, and of two prefixes two."""
    named = rule_id(prefix)
    assert len(named) <= 255
    assert named.isascii()
    assert not set(named) & set('/ "<>&')
    assert named != rule_id(f"{prefix}x")


@pytest.mark.parametrize("days", [0, -1, 2**31, True, 1.5])
def test_days_are_days(days: Any) -> None:
    """What S3 would refuse is refused before anything is read."""
    with pytest.raises(OptionError, match="whole number from 1"):
        merge({}, "", days)


def test_same_sees_every_difference_but_form() -> None:
    """An empty filter in either form, another order, an id that the store gave: the same."""
    drawn = aborting(3, ID="drawn")
    wanted = {"Rules": [aborting(7, Filter={}), EXPIRING, aborting(3, ID=...)], "T": "x"}
    stored: dict[str, Any] = {"Rules": [drawn, EXPIRING, aborting(7)], "T": "x", "more": 1}
    assert same(stored, wanted)
    for other in (
        {**stored, "T": "y"},
        {**stored, "Rules": stored["Rules"][1:]},
        {**stored, "Rules": [*stored["Rules"], LEGACY]},
        {**stored, "Rules": [aborting(4, ID="drawn"), EXPIRING, aborting(7)]},
    ):
        assert not same(other, wanted)


def test_ensure_twice_writes_once(command: Command, bucket: Bucket) -> None:
    """Unasked nothing is written; then ours comes beside others' rules; then nothing is needed."""
    bucket.have(EXPIRING, LEGACY, TransitionDefaultMinimumObjectSize="varies")
    dry = command(*ENSURE, "--dry-run")
    assert (dry.code, dry.err, dry.out.startswith("Would add rule")) == (0, "", True)
    assert "1 day is short" in command(*ENSURE[:-1], 1, "--dry-run").err  # for a recovery
    assert command(*ENSURE).code == command(*ENSURE[:-1], 0, "--yes").code == 2
    assert bucket.writes == 0
    first = command(*ENSURE, "--yes")
    assert (first.code, first.err) == (0, "")
    assert first.out.startswith(f"Added rule '{RULE_ID}': it aborts uploads 7 days after")
    assert bucket.configuration["Rules"][:2] == [EXPIRING, LEGACY]
    assert bucket.configuration["TransitionDefaultMinimumObjectSize"] == "varies"
    again = command(*ENSURE, "--format", "json").json()
    assert (again["change"], again["done"], again["rules"]) == ("nothing", False, 3)
    assert f"Nothing to do because of rule '{RULE_ID}': it aborts" in command(*ENSURE).out
    assert bucket.writes == 1


def test_the_call_is_the_command(command: Command, bucket: Bucket) -> None:
    """It reads; plans, and writes nothing; writes what was planned, of which the command says that
    it is enough."""
    bucket.have(EXPIRING)
    assert mc.lifecycle("s3://bucket") == bucket.configuration
    planned = mc.lifecycle("s3://bucket", days=7, dry_run=True)
    assert (bucket.configuration["Rules"], bucket.writes) == ([EXPIRING], 0)
    assert mc.lifecycle("s3://bucket", days=7) == bucket.configuration == planned
    assert command(*ENSURE, "--format", "json").json()["change"] == "nothing"
    with pytest.raises(mc.PathError, match="no lifecycle rules"):
        mc.lifecycle("file:///data/table")


def test_who_writes_at_the_same_moment_is_seen(command: Command, bucket: Bucket) -> None:
    """S3 has no condition: what somebody writes right after us is found by reading back."""
    bucket.have(EXPIRING)
    bucket.then = lambda: bucket.have(LEGACY)
    ran = command(*ENSURE, "--yes")
    assert ran.code == 46
    assert "is not what was just written" in ran.err
    assert ran.out == ""


def test_a_change_since_the_first_look_is_merged(
    command: Command, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read again right before it is written: what came while we asked stays."""
    bucket.have(EXPIRING)
    came = "magic_committer.cli.shell.Shell.confirm"
    monkeypatch.setattr(came, lambda *_, **__: bucket.have(EXPIRING, LEGACY))
    assert command(*ENSURE).code == 0
    assert bucket.configuration["Rules"][:2] == [EXPIRING, LEGACY]


def test_rules_are_shown_in_words(command: Command, bucket: Bucket) -> None:
    """Each says what it does about uploads, the rest as S3 writes it; programs have it whole."""
    sizes = {"And": {"Prefix": "big/", "ObjectSizeGreaterThan": 5 * 1024**2}}
    versions = {"NoncurrentDays": 9, "NewerNoncurrentVersions": 2}
    other = {"ID": "versions", "Status": "Enabled", "NoncurrentVersionExpiration": versions}
    bucket.have(EXPIRING, LEGACY, {**other, "Filter": sizes})
    ran = command("lifecycle", "show", "bucket")
    out = ran.out
    assert "  magic-committer lifecycle ensure s3://bucket/ --days 7" in ran.err.splitlines()
    assert '"Expiration":{"Days":30}' in out
    assert '"Transitions":[{"Days":3,"StorageClass":"GLACIER"}]' in out
    assert '"NewerNoncurrentVersions":2' in out
    assert '"Filter":{"And":{"Prefix":"big/","ObjectSizeGreaterThan":5242880}}' in out
    assert "No rule aborts uploads below s3://bucket/" in out
    bucket.have(aborting(3), EXPIRING)
    for how in ("json", "jsonl", "csv"):
        ran = command("lifecycle", "show", "s3://bucket/t", "--format", how)
        assert '"DaysAfterInitiation' in ran.out.replace('""', '"')
        if how == "json":
            assert ran.json()["summary"]["abort_days"] == 3
            assert [row["covers"] for row in ran.json()["rows"]] == [True, False]


def test_on_a_server(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the real client, on moto's server: from no rules to ours, beside one that came."""
    with moto_server("lived") as url:
        lead(monkeypatch, url)
        assert "No rule aborts" in command("lifecycle", "show", "lived").out
        bucket_settings("lived", moto_options(url)).put_lifecycle({"Rules": [EXPIRING]})
        for change in ("added", "nothing"):
            ran = command(
                "lifecycle", "ensure", "s3://lived/t", "--days", 7, "--yes", "--format", "json"
            )
            assert (ran.code, ran.json()["change"]) == (0, change)
        rows = command("lifecycle", "show", "s3://lived/t", "--format", "json").json()["rows"]
        assert [row["id"] for row in rows] == ["old logs", rule_id("t/")]
        assert rows[0]["rule"] == EXPIRING
        assert command("lifecycle", "show", "s3://nowhere").code == 44


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    """A server that answers as the test says, for the commands."""
    with scripted_server() as scripted:
        lead(monkeypatch, scripted.url)
        yield scripted


def settings(server: ScriptedServer) -> S3Lifecycle:
    """The bucket's settings on a scripted server."""
    return S3Lifecycle("bkt", moto_options(server.url), clock=HurriedClock())


NO_RULES = error(404, "NoSuchLifecycleConfiguration")


@pytest.mark.parametrize(
    ("read", "code", "words"),
    [
        (error(501, "NotImplemented"), 46, "does not have this operation"),
        (Reply(200, "<ListBucketResult><Name>bkt</Name></ListBucketResult>"), 46, "no lifecycle"),
        (Reply(200, ""), 46, "no lifecycle"),
        (error(403, "AccessDenied"), 43, "s3:GetLifecycleConfiguration"),
        (error(404, "NoSuchBucket"), 44, "NoSuchBucket"),
        (NO_RULES, 43, "s3:PutLifecycleConfiguration"),
    ],
)
def test_what_a_server_refuses(
    command: Command, server: ScriptedServer, read: Reply, code: int, words: str
) -> None:
    """Each has its exit code and says what to do, and nothing is written."""
    server.script = lambda asked: read if asked.method == "GET" else error(403, "AccessDenied")
    ran = command("lifecycle", "ensure", "bkt", "--days", 7, "--yes")
    assert (ran.code, ran.out) == (code, "")
    assert words in ran.err
    assert {asked.method for asked in server.asked} == {"GET", *(["PUT"] * (read is NO_RULES))}


def document(inside: str) -> str:
    """A lifecycle configuration as it comes."""
    space = "http://s3.amazonaws.com/doc/2006-03-01/"
    return (
        f'<LifecycleConfiguration xmlns="{space}"><Rule><ID>a</ID><Status>Enabled</Status>'
        f"<Filter><Prefix>x/</Prefix></Filter>{inside}</Rule></LifecycleConfiguration>"
    )


@pytest.mark.parametrize(
    ("inside", "field"),
    [
        ("<Novelty>1</Novelty>", "Rule.Novelty"),
        ("<Expiration><Weeks>1</Weeks></Expiration>", "Rule.Expiration.Weeks"),
        (
            "<Transition><Days>1</Days><StorageClass>GLACIER</StorageClass></Transition>"
            "<Transition><Moon>full</Moon></Transition>",
            "Rule.Transition.Moon",
        ),
    ],
)
def test_what_the_sdk_would_drop_is_not_written_over(
    server: ScriptedServer, inside: str, field: str
) -> None:
    """An element of a rule that boto3 does not know would be gone after a write: it is refused."""
    server.said(Reply(200, document(inside)))
    with pytest.raises(FormatError, match="would drop it") as caught:
        settings(server).lifecycle()
    assert caught.value.field == field


def test_all_that_is_known_goes_back(server: ScriptedServer) -> None:
    """Also the size limit in the header; the reply of a bucket without rules is none."""
    inside = (
        "<Expiration><Days>3</Days></Expiration>",
        "<NoncurrentVersionTransition><NoncurrentDays>2</NoncurrentDays>"
        "<StorageClass>GLACIER</StorageClass></NoncurrentVersionTransition>",
    )
    sizes = {"x-amz-transition-default-minimum-object-size": "varies_by_storage_class"}
    server.said(Reply(200, document("".join(inside)), sizes))
    bucket = settings(server)
    read = bucket.lifecycle()
    assert read["TransitionDefaultMinimumObjectSize"] == "varies_by_storage_class"
    bucket.put_lifecycle(merge(read, "t/", 7).configuration)
    put = server.asked[-1]
    assert put.headers["x-amz-transition-default-minimum-object-size"] == "varies_by_storage_class"
    for element in (*inside, "<ID>a</ID>", "<Prefix>x/</Prefix>", rule_id("t/")):
        assert element in put.body.decode()
    server.said(error(404, "NoSuchLifecycleConfiguration"))
    assert bucket.lifecycle() == {}


def test_a_store_without_a_lifecycle_says_so(command: Command, memory_s3: MemoryStore) -> None:
    """The in-memory store has none: not supported, exit code 46."""
    ran = command("lifecycle", "show", memory_s3.bucket)
    assert ran.code == 46
    with pytest.raises(NotSupported):
        bucket_settings(memory_s3.bucket, mc.S3Options())
