"""``doctor``: it names exactly what is denied and what the store lacks, promises no more than holds
there, leaves nothing behind; and the policies that it prints are enough and no more than that."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, get_args

import orjson
import pytest

import magic_committer as mc
from magic_committer.cli.doctor import ANSWERS
from magic_committer.commit import probe
from magic_committer.errors import FormatError, NotFound, PermissionDenied, Unanswered
from magic_committer.hadoop.paths import Destination
from magic_committer.maintenance.doctor import PERMISSIONS, ROLES, Role, actions_of, policy
from magic_committer.options import FAILING, Mode, Track
from magic_committer.runtime.wiring import register_store, unregister_store
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.stores.s3.errors import ACTIONS
from magic_committer.testing import PatientClock
from tests.cli.conftest import Command, Ran, contents
from tests.promises.hands import At, Nth, bury, committed_task, killed, raises, raising
from tests.unit.test_probe import SERVERS, Server

PATH = "s3://bucket/a/t"
DOCTOR = ("doctor", PATH, "--format", "json")
DEST = Destination.parse(PATH)
EVERY_MODE = set(get_args(Mode))
OFF_TOO = EVERY_MODE | {"Options(conditional_writes='off')"}
ON_STORES = [one.action for one in PERMISSIONS if one.action != "s3:GetLifecycleConfiguration"]


def denied(request: Request) -> PermissionDenied:
    """What S3 answers to who may not do it."""
    refused = PermissionDenied(f"{request.verb}: no", status=403, code="AccessDenied")
    refused.action = ACTIONS[request.verb]
    return refused


def forbid(store: MemoryStore, *actions: str) -> None:
    """A policy without these actions."""

    def look(request: Request) -> None:
        if ACTIONS[request.verb] in actions:
            raise denied(request)

    store.before = look


@pytest.fixture
def used(memory_s3: MemoryStore) -> Iterator[MemoryStore]:
    """A store that is in use. Nothing may be left in it."""
    memory_s3.put_object("a/t/data.csv", b"data")
    memory_s3.start_upload("a/t/other.csv")
    before = contents(memory_s3)
    yield memory_s3
    memory_s3.before = memory_s3.after = None
    assert contents(memory_s3) == before


@contextmanager
def served(store: MemoryStore) -> Iterator[MemoryStore]:
    """A store behind the command line."""
    register_store(store, PatientClock())
    try:
        yield store
    finally:
        unregister_store(store)


def checks(ran: Ran) -> dict[tuple[str, str], dict[str, Any]]:
    """The checks of an answer, by what they are about and their name, the first of each."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in ran.json()["rows"]:
        found.setdefault((row["about"], row["name"]), row)
    return found


def test_all_is_well(command: Command, used: MemoryStore) -> None:
    """On a store that has everything every mode is promised, and the store is as it was."""
    ran = command("doctor", PATH)
    assert (ran.code, ran.err) == (0, "")
    assert re.search(r"^append +yes +works: ", ran.out, re.MULTILINE)
    assert " no " not in ran.out


@pytest.mark.parametrize("action", ON_STORES)
def test_exactly_what_is_denied_is_named(command: Command, used: MemoryStore, action: str) -> None:
    """That one is denied, all others are found to be allowed, nothing is left behind. The call
    finds what the command prints."""
    forbid(used, action)
    ran, found = command(*DOCTOR), mc.doctor(PATH)
    rows = [(row["name"], row["answer"]) for row in ran.json()["rows"] if row["about"] != "store"]
    assert rows == [
        *((one.action, one.answer) for one in found.permissions),
        *((one.subject, ANSWERS.get(one.works, "unknown")) for one in found.verdicts),
    ]
    answers = {
        (row["name"], row["answer"])
        for row in ran.json()["rows"]
        if row["about"] == "permission" and row["name"] in ON_STORES
    }
    # Nothing is there above: that its GET is refused says nothing.
    above = {(action, "unknown")} if action == "s3:GetObject" else set()
    assert answers == above | {(n, "denied" if n == action else "ok") for n in ON_STORES}
    assert checks(ran)["promise", "append"]["answer"] == "no"
    assert action in checks(ran)["promise", "append"]["detail"]
    assert ran.code == 43


FINDING = ("promise", "finding uploads of killed tasks", "no")
DENIALS: dict[str, tuple[tuple[str, ...], list[tuple[str, ...]]]] = {
    "delete and abort": (
        ("s3:DeleteObject", "s3:AbortMultipartUpload"),
        [("permission", "s3:PutObject", "ok", ""), ("permission", "s3:GetObject", "ok", ""),
         ("permission", "s3:ListMultipartUploadParts", "ok", ""),
         ("store", "swap", "not asked", "")],
    ),
    "a 403 says nothing to who may not list": (
        ("s3:DeleteObject", "s3:ListBucket", "s3:GetObject"),
        [("permission", "s3:GetObject", "unknown", "without s3:ListBucket")],
    ),
    "the listing of uploads": (
        ("s3:ListBucketMultipartUploads",),
        [("store", "swap", "yes", ""), ("store", "uploads_by_prefix", "not asked", ""),
         (*FINDING, "s3:ListBucketMultipartUploads"), (*FINDING, "lifecycle")],
    ),
}  # fmt: skip
"""What is denied, and what is found all the same: about what, name, answer and words."""


@pytest.mark.parametrize("case", DENIALS)
def test_denials_do_not_hide_the_rest(command: Command, used: MemoryStore, case: str) -> None:
    """The rest is asked for, nothing is put, and what cannot be told is not claimed."""
    probe._known.pop(used.identity)  # as of a store that nobody knows
    actions, rows = DENIALS[case]
    forbid(used, *actions)
    found = checks(command(*DOCTOR))
    for about, name, answer, words in rows:
        assert found[about, name]["answer"] == answer
        assert words in found[about, name]["detail"]


@pytest.mark.parametrize("put", ["denied", "unanswered"])
def test_who_may_not_put_may_read(command: Command, used: MemoryStore, put: str) -> None:
    """That there is no object to be read says that it may be asked for, wherever it is asked."""
    if put == "denied":
        forbid(used, "s3:PutObject")
    else:
        used.before = raising(lambda r: r.verb == "put", Unanswered("no answer"))
    told = {(row["name"], row["answer"]) for row in command(*DOCTOR).json()["rows"]}
    assert {("s3:PutObject", put), ("s3:GetObject", "ok")} <= told
    assert {answer for name, answer in told if name == "s3:GetObject"} == {"ok"}


@pytest.mark.parametrize("refused", [True, False])
def test_what_an_object_that_is_not_there_answers_is_told(command: Command, refused: bool) -> None:
    """403, which a right to list some prefixes gives, is told, and nothing is denied by it."""
    with served(MemoryStore("bucket", missing_is_refused=refused)):
        ran = command(*DOCTOR)
    assert ran.code == 0, ran.out
    get = checks(ran)["permission", "s3:GetObject"]
    assert (get["answer"], "a job lists its key" in get["detail"]) == ("ok", refused)
    assert "denied" not in {row["answer"] for row in ran.json()["rows"]}


class OddRules(MemoryStore):
    """A bucket whose lifecycle holds what this library cannot write back."""

    def lifecycle(self) -> dict[str, Any]:
        raise FormatError("the lifecycle of bucket", "Rules[0]", "is new to us")

    def put_lifecycle(self, configuration: object) -> None:
        """Nobody may."""
        raise AssertionError(configuration)


def test_a_lifecycle_that_is_not_understood_may_be_read(command: Command) -> None:
    """What is in it is for ``lifecycle show``: here the permission counts."""
    with served(OddRules("bucket")):
        found = checks(command(*DOCTOR))
    assert found["permission", "s3:GetLifecycleConfiguration"]["answer"] == "ok"


def test_a_store_that_fails_half_way_is_told_and_left_clean(
    command: Command, used: MemoryStore
) -> None:
    """Permissions stand, the store's ways are unknown with the reason, nothing is left."""
    used.before = raising(lambda r: r.verb == "put_part", Unanswered("put_part: no answer"))
    ran = command(*DOCTOR)
    assert ran.code == 46
    assert ran.json()["summary"]["problem"] == "put_part: no answer"
    assert checks(ran)["promise", "append"]["answer"] == "unknown"


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        (Unanswered("list: no answer"), 48),
        (PermissionDenied("list: no", status=403, code="InvalidAccessKeyId"), 43),
    ],
)
def test_a_store_that_does_not_answer_is_asked_once(
    command: Command, used: MemoryStore, refused: Exception, code: int
) -> None:
    """If the first request gets no answer, or knows no such credentials, the doctor goes home."""
    used.before = raising("*", refused)
    used.requests.clear()
    ran = command("doctor", PATH)
    assert (ran.code, ran.out, used.requests.total()) == (code, "", 1)


@pytest.mark.parametrize("number", range(1, 16))
def test_nothing_is_left_when_it_is_interrupted(
    command: Command, used: MemoryStore, number: int
) -> None:
    """Ctrl-C at any request about permissions: what was there by then is taken away again."""
    At(used, Nth(number), KeyboardInterrupt(), after=True)
    assert command("doctor", PATH).code == 130


def test_an_upload_whose_create_got_no_answer_is_found(command: Command, used: MemoryStore) -> None:
    """The reply is lost, the upload is there: it is looked for by its key."""
    At(used, "create_upload", Unanswered("create_upload: no answer"), after=True)
    found = checks(command(*DOCTOR))
    assert found["permission", "s3:PutObject"]["answer"] == "unanswered"
    assert found["permission", "s3:AbortMultipartUpload"]["answer"] == "ok"


@pytest.mark.parametrize(
    ("name", "code", "lost", "words"),
    [
        ("garage", 46, EVERY_MODE,
         {"append": "of PUT If-None-Match the store ignores it", "Options": "helps"}),
        ("ceph rgw", 0, {"fail", "fail_partitions"},
         {"fail": "Complete If-None-Match the store ignores it", "replace": "with a warning"}),
        ("minio", 0, {"finding uploads of killed tasks", "a client that is killed during Complete"},
         {"append": "but for a client that is killed during a Complete (see below): a job is",
          "replace": "Complete (see below), with a warning",
          "fail": "Complete (see below): nothing", "finding": "by a part of its key",
          "a client": "may lose the file, if the store is MinIO",
          "a client that": "With a lower Options(commit_threads=…)"}),
        ("versitygw", 0, set(), {"finishing": "each object is looked at after its Complete"}),
        ("behind a proxy that spells anew", 46, OFF_TOO,
         {"append": "came back under the name 'Magic-Committer-Job'", "Options": "does not help"}),
        ("loses metadata of uploads", 46, OFF_TOO,
         {"append": "loses user metadata of multipart uploads"}),
        ("s3s-fs", 0, {"finding uploads of killed tasks"},
         {"finding": "(501 NotImplemented)", "finishing": "answers 403 AccessDenied"}),
        ("knows no conditions", 46, EVERY_MODE, {"append": "refuses it (501 NotImplemented)"}),
        ("minio, without If-None-Match", 0,
         {"fail", "fail_partitions", "finding uploads of killed tasks",
          "a client that is killed during Complete"},
         {"append": "(see below): a job is", "fail": "is refused: of Complete"}),
    ],
)  # fmt: skip
def test_no_more_is_promised_than_the_store_keeps(
    command: Command, name: str, code: int, lost: set[str], words: dict[str, str]
) -> None:
    """What a store ignores or refuses is named, with the modes that it costs and what helps."""
    with served(Server(**SERVERS[name][0])) as store:
        before = contents(store)
        ran = command(*DOCTOR)
        assert contents(store) == before
    assert ran.code == code
    promises = {row["name"]: row for row in ran.json()["rows"] if row["about"] == "promise"}
    rule = f"  magic-committer lifecycle ensure {PATH}/ --days 7\n"
    assert (rule in ran.err) == (promises["finding uploads of killed tasks"]["answer"] == "no")
    no = {name: row["detail"] for name, row in promises.items() if row["answer"] == "no"}
    assert no.keys() == lost
    assert not any(told.startswith("works") for told in no.values())
    for begins, wanted in words.items():
        told = [row["detail"] for name, row in promises.items() if name.startswith(begins)]
        assert told
        assert all(wanted in detail for detail in told)


@pytest.mark.parametrize("mode", ["append", "fail", "replace"])
@pytest.mark.parametrize("name", SERVERS)
def test_the_verdict_is_what_a_job_meets(command: Command, name: str, mode: Mode) -> None:
    """A job of a mode starts on a store exactly if the doctor says so."""
    with served(Server(**SERVERS[name][0])):
        found = checks(command(*DOCTOR))
        try:
            mc.start(PATH, mode=mode)
            starts = True
        except mc.ConditionsNotSupported:
            starts = False
    assert (found["promise", mode]["answer"] == "yes") == starts


def test_the_documents_have_the_committers_policy(command: Command) -> None:
    """It is the one that the doctor prints: bare for people, for programs within the schema."""
    page = (Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
    (written,) = re.findall(r"```json\n(\{\n  \"Version.*?)```", page, re.DOTALL)
    assert orjson.loads(written) == policy("committer", Destination.parse("s3://bucket/table"))
    bare = orjson.loads(command("doctor", PATH, "--policy", "cleaner").out)
    assert bare == policy("cleaner", DEST)
    told = command("doctor", PATH, "--policy", "cleaner", "--format", "json").json()
    assert (told["schema"], told["type"], told["policy"]) == (1, "policy", bare)
    assert mc.policy(PATH, "cleaner") == bare
    raises(mc.OptionError, mc.policy, PATH, "reader", match="writer, committer, cleaner")
    odd = policy("committer", Destination("bucket", "a*/b?$/"))
    assert odd["Statement"][0]["Resource"] == "arn:aws:s3:::bucket/a${*}/b${?}${$}/*"


OF_THE_MEMORY_TRACK = {
    "s3:PutObject", "s3:GetObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"
}  # fmt: skip
"""A task with ``track="memory"`` lists no objects and deletes none (docs/security.md)."""


class Guard:
    """Holds whoever acts to a role's policy, as IAM would. ``loses``: no Complete is answered, or
    has an effect."""

    def __init__(self, store: MemoryStore) -> None:
        self.loses = False
        self.role: Role | None = None
        self.track: Track = "s3"
        self.did: dict[str, set[str]] = {role: set() for role in ROLES}
        store.before, store.after = self._look, self._tell

    @contextmanager
    def acting(self, role: Role) -> Iterator[None]:
        """What is done in the block is done by that role."""
        before, self.role = self.role, role
        try:
            yield
        finally:
            self.role = before

    def _look(self, request: Request) -> None:
        if self.role is None:
            return
        action = ACTIONS[request.verb]
        self.did[self.role].add(action)
        for key in request.keys or (request.key,):
            if not self._may(action, key):
                refused = denied(request)
                refused.args = (f"{self.role} {action} {key}",)
                raise refused
        if self.loses and request.verb == "complete_upload":
            raise Unanswered("no answer")

    def _tell(self, request: Request, answer: object) -> PermissionDenied | None:
        """Of a missing object IAM says so only to who may list, by a request without a prefix."""
        if self.role is None or request.verb not in ("get", "head"):
            return None
        hides = isinstance(answer, NotFound) and not self._may("s3:ListBucket", None)
        return denied(request) if hides else None

    def _may(self, action: str, key: str | None) -> bool:
        assert self.role is not None
        if (self.role, self.track) == ("writer", "memory") and action not in OF_THE_MEMORY_TRACK:
            return False
        statements = policy(self.role, DEST)["Statement"]
        return any(allows(statement, action, key) for statement in statements)


def allows(statement: dict[str, Any], action: str, key: str | None) -> bool:
    """Whether a statement allows an action on a key, or the listing of a prefix."""

    def each(value: Any) -> list[str]:
        return value if isinstance(value, list) else [value]

    if action not in each(statement["Action"]):
        return False
    if action.startswith("s3:List") and "Parts" not in action:
        condition = statement.get("Condition", {}).get("StringLike", {}).get("s3:prefix")
        if condition is None or key is None:
            return condition is None
        return any(fnmatchcase(key, pattern) for pattern in each(condition))
    arn = f"arn:aws:s3:::bucket/{key}"
    return any(fnmatchcase(arn, pattern) for pattern in each(statement["Resource"]))


def write_files(guard: Guard, job: mc.Job) -> list[mc.TaskCommit]:
    """Two tasks of a job, one of them tried twice, by a writer."""
    results = []
    for task in ("1", "2"):
        with guard.acting("writer"):
            with suppress(ZeroDivisionError), job.task(task) as attempt:
                with attempt.open("cut.csv") as file:
                    file.write(b"cut")
                raise ZeroDivisionError
            results.append(
                committed_task(job, task, {f"{task}/{n}": b"data" for n in ("x.csv", "sub/y.csv")})
            )
    return results


def jobs(guard: Guard, store: MemoryStore, mode: Mode, track: Track) -> None:
    """Jobs that commit, abort, die and are recovered by hand or from cron."""
    guard.track = track
    for end in ("commit", "abort", "recover", "finish", "revert", "litter", "cleanup"):
        if mode in FAILING:
            store.delete([key for key in store.keys("a/t/") if "/_" not in key])
        with guard.acting("committer"):
            job = mc.start(PATH, mode=mode, track=track, accept="results")
        results = write_files(guard, job)
        if end in ("recover", "cleanup", "litter"):
            with guard.acting("writer"):
                killed(job, "3", "killed.csv", unique=True)
        with guard.acting("committer"):
            if end in ("finish", "revert"):
                guard.loses = True
                with pytest.raises(mc.CommitIncomplete):
                    job.commit(results)
                guard.loses = False
            if end == "abort":
                job.abort()
            elif end == "recover":
                mc.recover(PATH, job.id, dead_after=0.0)
            elif end == "revert":
                assert mc.abort(PATH, job.id, revert=True).outcome == "reverted"
            elif end == "finish":
                assert mc.recover(PATH, job.id).outcome == "committed"
            if end in ("commit", "finish"):
                assert job.commit(results).outcome == "committed"
        if end == "litter":
            store.delete([f"a/t/__magic_job-{job.id}/_job.json"])
    with guard.acting("cleaner"):
        report = mc.cleanup(PATH, dead_after=0.0, leftover_after=0.0, forget_after=0.0)
    bury()
    assert (report.errors, len(report.recovered)) == ((), 1)
    assert report.uploads_aborted >= 1


@pytest.mark.parametrize("track", ["s3", "memory"])
@pytest.mark.parametrize("mode", get_args(Mode))
def test_the_policies_are_enough(mode: Mode, track: Track) -> None:
    """And no policy says more than is used, but for two that no undisturbed job needs."""
    with served(MemoryStore("bucket")) as store:
        guard = Guard(store)
        store.put_object("a/t/1/x.csv", b"old")
        mc.start("s3://bucket/a")
        jobs(guard, store, mode, track)
        if mode not in FAILING:
            assert store.body("a/t/1/x.csv") == b"data"
        assert not store.open_uploads()
    seldom = {"s3:ListMultipartUploadParts", "s3:GetLifecycleConfiguration"}
    for role in ROLES if (mode, track) == ("replace", "s3") else ():
        assert guard.did[role] | seldom == actions_of(role) | seldom, role


@pytest.mark.parametrize("role", ROLES)
def test_the_doctor_needs_no_more_than_the_policy_it_judges(command: Command, role: Role) -> None:
    """A role's policy has all that the role needs, and lacks what others need more."""
    with served(MemoryStore("bucket")) as store:
        guard = Guard(store)
        with guard.acting(role):
            ran = command("doctor", PATH, "--role", role, "--format", "json")
        assert ran.code == 0, ran.out
        lacking = {one for one in ROLES if actions_of(one) - actions_of(role)} | {"cleaner"}
        rows = [row for row in ran.json()["rows"] if row["answer"] == "denied"]
        assert {one for row in rows for one in row["roles"]} == lacking - {role}
        assert contents(store) == ({}, ())
