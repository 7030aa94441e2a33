"""`commit.probe`: what each real server does is found out, once; nothing is left behind."""

from __future__ import annotations

import copy
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from msgspec import structs

import magic_committer as mc
from magic_committer.commit import probe, register
from magic_committer.commit.probe import Capabilities
from magic_committer.errors import InvalidRequest, NotSupported, PreconditionFailed, Unanswered
from magic_committer.hadoop.paths import Destination, JobPaths, uuid_in_name
from magic_committer.options import ConditionalWrites, Mode
from magic_committer.protocol.record import JOB_METADATA, USUAL_TERMS, JobRecord, State
from magic_committer.runtime.components import Runtime
from magic_committer.runtime.threads import ThreadPool
from magic_committer.runtime.wiring import register_store, unregister_store
from magic_committer.stores.base import (
    ObjectInfo,
    ObjectStore,
    Part,
    StoredObject,
    UploadPage,
    Written,
)
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.stores.unconditional import unconditional
from magic_committer.testing import PatientClock
from tests.promises.hands import raises, raising

DEST = "s3://bucket/t"
UUID = "5" * 32


class Server(MemoryStore):
    """The in-memory store with the ways of a real server, which are given by their names."""

    ignores: Sequence[str] = ()
    """Verbs that take a condition and do not look at it."""
    refuses: Mapping[str, int] = {}
    """Verbs that do not know the condition's header, and with which status."""
    pretends: Sequence[str] = ()
    """Verbs that answer that a condition did not hold, and do it all the same."""
    unquoted: bool | str = False
    """PUT understands an ``If-Match`` only without its quotes; "never": not at all."""
    again: mc.StoreError | None = None
    """A second Complete's error."""
    listing = ""
    """``"keys"``: uploads are listed by whole keys only; ``"all"``: whatever the prefix;
    ``"none"``: there is no such call."""
    believes = False
    """A Complete of an upload that is not open is answered with 200 if there is any object at its
    key (versitygw)."""
    metadata = ""
    """``"title"``: names come back as Go writes them; ``"lost"``: none does; ``"lost of uploads"``;
    ``"changed"``: the values are others."""

    def __init__(self, **ways: Any) -> None:
        rules = {name: ways.pop(name) for name in [*ways] if not hasattr(Server, name)}
        super().__init__(**rules)
        vars(self).update(ways)
        self.completed: set[str] = set()

    def _as_the_server(self, verb: str, do: Callable[..., Any], terms: Mapping[str, Any]) -> Any:
        """Do it as a server with these ways does that is given conditions."""
        bare = {name: value for name, value in terms.items() if not name.startswith("if_")}
        if not (terms.get("if_match") or terms.get("if_none_match")):
            return do(**bare)
        if verb in self.refuses:
            status = self.refuses[verb]
            error = NotSupported if status == 501 else InvalidRequest
            code = "NotImplemented" if status == 501 else "InvalidArgument"
            raise error(f"{verb}: {code}", operation=verb, status=status, code=code)
        if verb in self.ignores:
            return do(**bare)
        if verb in self.pretends:
            do(**bare)
            raise PreconditionFailed(f"{verb}: no", status=412)
        return do(**terms)

    def put(self, key: str, body: bytes, **terms: Any) -> Written:
        def do(**terms: Any) -> Written:
            etag = terms.get("if_match")
            if etag and (self.unquoted == "never" or (self.unquoted and etag[0] == '"')):
                raise PreconditionFailed("put: no", status=412)
            return MemoryStore.put(self, key, body, **terms)

        written: Written = self._as_the_server("put", do, terms)
        return written

    def delete_one(self, key: str, **terms: Any) -> None:
        self._as_the_server("delete_one", partial(MemoryStore.delete_one, self, key), terms)

    def complete_upload(
        self, key: str, upload_id: str, parts: Sequence[Part], **terms: Any
    ) -> Written:
        if self.again is not None and upload_id in self.completed:
            raise self.again
        is_open = any(one.upload_id == upload_id for one in self.open_uploads(key))
        if self.believes and not is_open and key in self.keys():
            return Written('"as-if-1"')
        do = partial(MemoryStore.complete_upload, self, key, upload_id, parts)
        written: Written = self._as_the_server("complete_upload", do, terms)
        self.completed.add(upload_id)
        return written

    def head(self, key: str) -> ObjectInfo:
        return self._told(super().head(key))

    def get(self, key: str, *, max_bytes: int) -> StoredObject:
        stored = super().get(key, max_bytes=max_bytes)
        return replace(stored, info=self._told(stored.info))

    def _told(self, info: ObjectInfo) -> ObjectInfo:
        metadata = dict(info.metadata or {})
        if self.metadata == "title":
            metadata = {name.title(): value for name, value in metadata.items()}
        elif self.metadata == "changed":
            metadata = {name: value.upper() for name, value in metadata.items()}
        elif self.metadata == "lost" or (self.metadata and "-1" in info.etag):
            metadata = {}
        return replace(info, metadata=metadata)

    def list_uploads(self, prefix: str) -> Iterator[UploadPage]:
        if self.listing == "none":
            raise NotSupported("list_uploads: no such call", status=501, code="NotImplemented")
        pages = super().list_uploads("" if self.listing == "all" else prefix)
        for page in pages:
            whole = tuple(u for u in page.uploads if u.key == prefix)
            yield UploadPage(whole, page.seen_at) if self.listing == "keys" else page


EVERYTHING = Capabilities(
    conditional_put=True,
    swap=True,
    etag_quoting="quoted",
    conditional_complete=True,
    conditional_delete=True,
    second_complete="idempotent",
    uploads_by_prefix=True,
    metadata_kept=True,
    true_complete=True,
)
ALL_VERBS = ("put", "complete_upload", "delete_one")
DENIED = mc.PermissionDenied("complete_upload: no", status=403, code="AccessDenied")
BROKEN = Unanswered("complete_upload: no", status=500, code="InternalError")


def found(*answers: Any) -> Capabilities:
    """What a probe finds on a store that gives metadata back and does not believe a dead upload."""
    return replace(Capabilities(*answers), metadata_kept=True, true_complete=True)


NO_METADATA = replace(EVERYTHING, metadata_kept=False)
SERVERS: dict[str, tuple[dict[str, Any], Capabilities]] = {
    "aws, moto, s3proxy": ({}, EVERYTHING),
    "versitygw": ({"believes": True}, replace(EVERYTHING, true_complete=False)),
    "behind a proxy that spells anew": ({"metadata": "title"}, NO_METADATA),
    "loses metadata": ({"metadata": "lost"}, NO_METADATA),
    "loses metadata of uploads": ({"metadata": "lost of uploads"}, NO_METADATA),
    "changes metadata": ({"metadata": "changed"}, NO_METADATA),
    "minio": ({"ignores": ["delete_one"], "forgetful_complete": True, "listing": "keys"},
              found(True, True, "quoted", True, False, "forgetful", False)),
    "minio, without If-None-Match": (
        {"ignores": ["complete_upload", "delete_one"], "forgetful_complete": True,
         "listing": "keys"},
        found(True, True, "quoted", False, False, "forgetful", False)),
    "ceph rgw": ({"ignores": ["complete_upload", "delete_one"], "unquoted": True},
                 found(True, True, "unquoted", False, False, "idempotent", True)),
    "localstack": ({"refuses": {"delete_one": 501}, "forgetful_complete": True},
                   found(True, True, "quoted", True, False, "forgetful", True)),
    "gofakes3": ({"ignores": ["complete_upload", "delete_one"], "forgetful_complete": True},
                 found(True, True, "quoted", False, False, "forgetful", True)),
    "s3s-fs": ({"ignores": ["delete_one"], "again": DENIED, "listing": "none"},
               found(True, True, "quoted", True, False, "other", False)),
    "nanio": ({"ignores": ALL_VERBS, "forgetful_complete": True, "listing": "all"},
              found(False, False, None, False, False, "forgetful", False)),
    "garage": ({"ignores": ALL_VERBS, "forgetful_complete": True},
               found(False, False, None, False, False, "forgetful", True)),
    "knows no conditions": ({"refuses": dict.fromkeys(ALL_VERBS, 501), "again": BROKEN},
                            found(False, False, None, False, False, "other", True)),
    "takes no right ETag": ({"unquoted": "never"},
                            found(True, False, None, True, True, "idempotent", True)),
    "pretends": ({"pretends": ALL_VERBS},
                 found(False, False, None, False, False, "idempotent", True)),
}  # fmt: skip
"""A name: how the server behaves, and what a probe finds."""


def runtime_of(store: ObjectStore) -> Runtime:
    """All requests in this thread, one after the other."""
    return Runtime(store, pool=ThreadPool(0), clock=PatientClock())


def created_job(
    store: MemoryStore, how: ConditionalWrites = "on"
) -> tuple[JobPaths, register.Seen]:
    """A job whose record was just written."""
    paths = JobPaths(Destination.parse(DEST), UUID)
    terms = structs.replace(USUAL_TERMS, conditional_writes=how)
    record = JobRecord.running(
        id=UUID, uuid=UUID, nonce="n", terms=terms, given_id=False, started=0.0
    )
    etag = store.put_object(paths.record, record.encode(), metadata={JOB_METADATA: UUID})
    return paths, register.Seen(paths.record, record, etag, 0.0, 0.0)


@pytest.fixture
def served(request: pytest.FixtureRequest) -> Iterator[Server]:
    store = Server(**SERVERS[request.param][0])
    register_store(store, PatientClock())
    yield store
    unregister_store(store)


def server(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("served", [name], indirect=True)


# What is found --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SERVERS)
def test_every_way_of_a_server_is_found_and_nothing_is_left(name: str) -> None:
    """Each verb is asked by itself; a neighbour's object and upload stay, and nothing else does."""
    ways, expected = SERVERS[name]
    store = Server(**ways)
    store.put_object("t/data.csv")
    store.start_upload("t/other.csv")
    assert probe.probe_all(runtime_of(store), "t/") == expected
    assert store.keys() == ("t/data.csv",)
    assert [upload.key for upload in store.open_uploads()] == ["t/other.csv"]


def test_a_lack_comes_with_the_stores_answer() -> None:
    """In `notes`. A 412 is believed when the object is as it was; a prefix needs its slash."""
    raises(ValueError, probe.probe_all, runtime_of(MemoryStore()), "t", match="closing slash")
    store = Server(ignores=["complete_upload"], refuses={"delete_one": 501}, listing="none")
    assert probe.probe_all(runtime_of(store), "t/").notes == {
        "conditional_complete": "ignores it",
        "conditional_delete": "refuses it (501 NotImplemented)",
        "uploads_by_prefix": "does not list uploads (501 NotImplemented)",
    }
    assert probe.probe_all(runtime_of(MemoryStore()), "").notes == {}
    notes = probe.probe_all(runtime_of(Server(pretends=ALL_VERBS)), "t/").notes
    verbs = ("conditional_put", "swap", "conditional_complete", "conditional_delete")
    assert notes == dict.fromkeys(verbs, "answers that it did not hold, and ignores it")


def test_scratch_is_hidden_from_readers_and_marked_as_the_jobs() -> None:
    """Each object carries its job's token, each upload its UUID, in a job's directory."""
    store = Server(ignores=ALL_VERBS)
    uuids: set[str | None] = set()
    dest = Destination.parse(DEST)

    def look(request: Request, reply: object) -> None:
        for key in store.keys():
            uuids.add(store.attributes(key).metadata[JOB_METADATA])
            uuids.add(key.removeprefix(dest.jobs_prefix).partition("/")[0])
        uuids.update(uuid_in_name(upload.key) for upload in store.open_uploads())

    store.after = look
    probe.probe_all(runtime_of(store), "t/")
    assert len(uuids) == 1
    assert None not in uuids


# What a job needs -----------------------------------------------------------------------------


def ask(store: MemoryStore, *wants: probe.Want, how: ConditionalWrites = "on") -> Capabilities:
    """What a job that wants this is told of its store."""
    probe.need(runtime_of(store), *created_job(store, how), set(wants))
    return probe.known(store.identity)


def test_a_job_is_asked_for_ten_requests_once() -> None:
    """3 PUTs of the record, a HEAD, 7 about a dead upload; a mode pays for its conditions."""
    store = MemoryStore()
    paths, seen = created_job(store)

    def costs(mode: Mode) -> int:
        store.requests.clear()
        probe.need(runtime_of(store), paths, seen, probe.wants_at_setup(mode))
        return store.requests.total()

    assert costs("append") == 10
    assert probe.known(store.identity) == Capabilities(
        conditional_put=True, swap=True, metadata_kept=True, true_complete=True
    )
    assert (store.requests["put"], store.requests["head"]) == (3, 1)
    paid = [costs(mode) for mode in ("append", "fail", "fail", "replace_partitions")]
    assert paid == [0, 7, 0, 5]
    assert store.keys() == (seen.key,)
    assert store.open_uploads() == ()


NO, DENIED_HEAD = Unanswered("no"), mc.PermissionDenied("no", status=403)
_500, _503 = (Unanswered("no", status=status) for status in (500, 503))
GONE = mc.NotFound("no", status=404)


@pytest.mark.parametrize(
    ("answers", "expected", "sent"),
    [
        ([_500] * 3, True, ["once"] * 3),
        ([_500, None], False, ["once"] * 2),
        ([_500, _500, None], False, ["once"] * 3),
        ([_500, _500, NO], None, ["once"] * 3),
        ([_503, GONE], True, ["once", "again"]),
        ([_503, None], False, ["once", "again"]),
        ([NO, _503, _503], True, ["once", "again", "again"]),
        ([NO, NO], None, ["once", "again"]),
        ([DENIED_HEAD] * 3, True, ["once"] * 3),
        ([DENIED_HEAD, None], False, ["once"] * 2),
        ([GONE], True, ["once"]),
        ([None], False, ["once"]),
    ],
)
@pytest.mark.parametrize("conditions", ["on", "off"])
def test_a_single_error_does_not_make_a_store_tell_the_truth(
    answers: list[mc.StoreError | None], expected: bool | None, sent: list[str], conditions: str
) -> None:
    """A 404 counts, or what came three times: Ceph and moto answer 500 for ever. None: an error."""
    how: list[str] = []

    class Patient(MemoryStore):
        name = "again"

        def once(self) -> Patient:
            single = copy.copy(self)
            single.name = "once"
            return single

        def complete_upload(self, *args: Any, **terms: Any) -> Written:
            how.append(self.name)
            answer = answers[len(how) - 1]
            if answer is None:
                return Written("")
            raise answer

    store = Patient()
    asked: ObjectStore = store if conditions == "on" else unconditional(store)
    with pytest.raises(Unanswered) if expected is None else nullcontext():
        probe.need(runtime_of(asked), *created_job(store), {"true_complete"})
    assert (probe.known(store.identity).true_complete, how) == (expected, sent)


def test_what_a_stores_own_retries_have_asked_often_is_not_asked_again() -> None:
    """A store that has no way to send once, and answers 500 to each of its tries."""
    store, tried = MemoryStore(), Unanswered("no", status=500, attempts=5)
    store.before = raising("complete_upload", tried)
    assert ask(store, "true_complete").true_complete
    assert store.requests["complete_upload"] == 1


SINGLE: Mapping[str, Sequence[tuple[int, mc.StoreError]]] = {
    "two wrong": [(1, InvalidRequest("no", status=400)), (2, NotSupported("no", status=501))],
    "a right one": [(2, PreconditionFailed("no", status=412))],
    "a wrong and a right one": [
        (1, InvalidRequest("no", status=400)),
        (3, PreconditionFailed("no", status=412)),
    ],
}


@pytest.mark.parametrize("errors", SINGLE.values(), ids=SINGLE)
@pytest.mark.parametrize(
    ("want", "verb"),
    [
        ("conditional_delete", "delete_one"),
        ("conditional_complete", "complete_upload"),
        ("conditional_put", "put"),
        ("swap", "put"),
    ],
)
def test_a_single_refusal_does_not_make_a_store_lack_a_condition(
    want: probe.Want, verb: str, errors: Sequence[tuple[int, mc.StoreError]]
) -> None:
    """It may be a proxy's: plain DELETEs from then on would cost a neighbour's `_SUCCESS`."""
    store, left = MemoryStore(), dict(errors)
    asked = 0

    def fail(request: Request) -> None:
        nonlocal asked
        if request.verb == verb and (request.if_match or request.if_none_match):
            asked += 1
            if error := left.pop(asked, None):
                raise error

    store.before = fail
    assert getattr(ask(store, want), want) is True
    assert asked > 1 or min(dict(errors)) > 1


def test_a_right_etag_that_is_refused_once_is_sent_again() -> None:
    """A 412 by accident costs no conditions: each quoting is tried twice."""

    class Quoted(MemoryStore):
        accidents = 2  # one for the PUT, one for the DELETE

        def hear(self, request: Request) -> None:
            etag = request.if_match
            if etag in (None, probe.STALE_ETAG):
                return
            accident = self.accidents == (2 if request.verb == "put" else 1)
            self.accidents -= accident
            if accident or not etag.startswith('"'):
                raise PreconditionFailed("no", status=412)

    store = Quoted()
    store.before = store.hear
    found = probe.probe_all(runtime_of(store), "")
    assert (found.swap, found.etag_quoting, found.conditional_delete) == (True, "quoted", True)
    assert store.accidents == 0


@pytest.mark.parametrize(
    ("ways", "told"),
    [
        *(({"metadata": how}, "user metadata") for how in ("title", "lost", "changed")),
        ({"refuses": dict.fromkeys(ALL_VERBS, 501)}, r"refuses it \(501 NotImplemented\)"),
    ],
)
def test_a_store_that_lacks_what_jobs_need_is_refused(ways: dict[str, Any], told: str) -> None:
    """Where metadata does not come back, files could not be told from others'. Nothing is left."""
    store = Server(**ways)
    register_store(store, PatientClock())
    try:
        raises(mc.ConditionsNotSupported, mc.start, DEST, match=told)
    finally:
        unregister_store(store)
    assert store.keys() == ()


def test_another_record_by_now_teaches_nothing() -> None:
    """The id was used again between PUT and HEAD: that metadata says nothing of the store."""
    store = MemoryStore()
    paths, seen = created_job(store)
    store.put_object(paths.record, b"another run's", metadata={JOB_METADATA: "6" * 32})
    wants: set[probe.Want] = {"metadata_kept"}
    probe.need(runtime_of(store), paths, seen, wants)
    assert probe.known(store.identity).metadata_kept is None


def test_a_store_that_ignores_everything_keeps_the_record_as_it_was() -> None:
    """The question that an ignoring store carries out writes the bytes that are there."""
    store = Server(ignores=ALL_VERBS)
    paths, seen = created_job(store)
    for _ in range(2):  # the refusal is remembered too
        with pytest.raises(
            mc.ConditionsNotSupported, match="If-None-Match on PutObject: it ignores"
        ):
            probe.need(runtime_of(store), paths, seen, {"conditional_put"})
    with pytest.raises(mc.ConditionsNotSupported, match="If-Match on PutObject: it ignores"):
        probe.need(runtime_of(store), paths, seen, {"swap"})
    assert store.requests == Counter(put=2, get=2)  # a bad answer is believed of a running job only
    assert store.body(seen.key) == seen.record.encode()
    assert store.head(seen.key).etag == seen.etag


@pytest.mark.parametrize("error", [NO, GONE])
def test_what_is_not_answered_is_not_learnt(error: mc.StoreError) -> None:
    """No answer, and a 404 though the job runs, are errors; the next job asks again."""
    store = MemoryStore()
    store.before = raising("delete_one" if error is GONE else "*", error)
    raises(type(error), ask, store, "conditional_delete")
    assert probe.known(store.identity) == Capabilities()
    store.before = None
    assert ask(store, "conditional_delete").conditional_delete is True


def test_a_job_that_wants_no_conditions_asks_only_whether_a_complete_is_true() -> None:
    """No condition is asked for or relied on. Of many stores the last are remembered."""
    store = MemoryStore()
    told = ask(store, *probe.wants_at_setup("fail"), how="off")
    assert told == Capabilities(true_complete=True)
    assert store.requests["complete_upload"]
    assert not store.open_uploads()
    for _ in range(probe.STORES_KNOWN_MAX):
        ask(MemoryStore(), "swap")
    assert probe.known(store.identity).true_complete is None


# What a job is told ---------------------------------------------------------------------------


@server("ceph rgw")
def test_mode_fail_is_refused_where_complete_ignores_its_condition(served: Server) -> None:
    """The error names the verb and what works all the same; nothing is left; append works."""
    caught = raises(mc.ConditionsNotSupported, mc.start, DEST, mode="fail")
    assert "If-None-Match on CompleteMultipartUpload: it ignores it" in str(caught)
    assert "Modes 'fail' (Spark: 'error'), 'fail_partitions' do not work there" in str(caught)
    assert "'append', 'replace' (Spark: 'overwrite'), 'replace_partitions'" in str(caught)
    assert served.keys() == ()
    assert served.open_uploads() == ()
    assert mc.start(DEST, mode="append").state == State.RUNNING


@pytest.mark.parametrize(
    "served", ["minio", "ceph rgw", "localstack", "gofakes3", "s3s-fs"], indirect=True
)
def test_mode_replace_warns_where_delete_knows_no_condition(
    served: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Replacing works there; the log says what may be lost."""
    with caplog.at_level(logging.WARNING, "magic_committer"):
        job = mc.start(DEST, mode="replace")
    assert "has no conditional DELETE" in caplog.text
    assert served.keys() == (f"t/__magic_job-{job.id}/_job.json",)


# Failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [False, True], ids=["before", "after"])
def test_a_probe_that_fails_leaves_nothing(lost: bool, caplog: pytest.LogCaptureFixture) -> None:
    """At any request, before or after its effect; where the removal fails the log names it."""
    number, sent = 0, ["", ""]
    while len(sent) > number:
        number, sent = number + 1, []
        store = MemoryStore()

        def fail(
            request: Request, reply: object = None, sent: list[str] = sent, number: int = number
        ) -> None:
            sent.append(request.verb)
            if len(sent) == number:
                raise NO

        setattr(store, "after" if lost else "before", fail)
        caplog.clear()
        failed = False
        try:
            probe.probe_all(runtime_of(store), "t/")
        except Unanswered:
            failed = True
        left = [*store.keys(), *(upload.key for upload in store.open_uploads())]
        warned = "a probe of the store leaves" in caplog.text
        removed = sent[number - 1 : number] in (["abort_upload"], ["delete_one"])
        assert failed or (warned and removed) or len(sent) < number, (number, sent)
        assert not left or (warned and all(key in caplog.text for key in left)), (number, left)
