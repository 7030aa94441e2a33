"""Records, plans and pendingsets that somebody forged who may write below one destination.

An operator's `cleanup`, `recover` and `abort` read them with rights to the whole bucket. Whatever
they say: nothing outside of the destination is deleted, completed, aborted or written, and no
pendingset, plan or record is believed that is not the job's own.
"""

from __future__ import annotations

import random
import tracemalloc
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import orjson
import pytest
from msgspec.structs import replace

import magic_committer as mc
from magic_committer.hadoop import documents
from magic_committer.options import Mode
from magic_committer.protocol.record import JOB_METADATA, TOKEN_METADATA
from magic_committer.stores.memory import MemoryStore
from magic_committer.testing import PatientClock, memory_store
from tests.plans import read_plan, write_plan
from tests.promises.hands import DEST, bury
from tests.promises.machine import DAY, STATES, Machine

SEEDS = range(25)
"""For each state and mode."""
MODES: tuple[Mode, ...] = ("append", "replace", "replace_partitions", "fail")
NEIGHBOUR = "other"

Json = dict[str, Any]


class Attack:
    """A job of ``t/`` whose driver died, a neighbour elsewhere in the bucket, and what a forger may
    do: rewrite everything below ``t/``, so that all ETags fit again."""

    def __init__(self, s3: MemoryStore, machine: Machine, state: str, mode: Mode) -> None:
        self.s3 = s3
        s3.put_object("other/data.csv", b"theirs")
        s3.put_object("other/_SUCCESS", b"")
        s3.put_object("_SUCCESS", b"")
        with mc.write(f"s3://bucket/{NEIGHBOUR}") as job, job.open("published.csv") as f:
            f.write(b"published")
        self.token = s3.attributes("other/published.csv").metadata[TOKEN_METADATA]
        self.upload = s3.start_upload("other/open.csv")
        part = s3.put_part("other/open.csv", self.upload, 1, memoryview(b"half"))
        self.part_etag = part.etag
        if mode.startswith("replace"):
            s3.put_object("t/old.csv", b"old")
        self.job = machine.job(state, job_id="j", mode=mode)
        self.directory = f"t/__magic_job-{self.job.id}/"
        self.before = self.outside()

    def outside(self) -> tuple[dict[str, bytes], list[str]]:
        objects = {k: self.s3.body(k) for k in self.s3.keys() if not k.startswith("t/")}
        uploads = [u.upload_id for u in self.s3.open_uploads() if not u.key.startswith("t/")]
        return objects, uploads

    def etag(self, key: str) -> str:
        return self.s3.head(key).etag

    def record(self) -> Json:
        document: Json = orjson.loads(self.s3.body(f"{self.directory}_job.json"))
        return document

    def plan(self) -> Json | None:
        """The decided plan's document, if it is there."""
        plan = self.record()["plan"]
        if plan is None or plan["key"] not in self.s3.keys():
            return None
        return read_plan(self.s3.body(plan["key"]))

    def put(self, key: str, body: bytes) -> str:
        """Write a control object with the job's token; its ETag."""
        return self.s3.put_object(key, body, metadata={JOB_METADATA: self.job.uuid})

    def write_record(self, document: Json) -> None:
        self.put(f"{self.directory}_job.json", orjson.dumps(document))

    def write_plan(self, document: Json) -> None:
        """Forge the plan, and make the record name it."""
        record = self.record()
        nonce = "f" * 32
        key = f"{self.directory}_plan-{nonce}.json"
        etag = self.put(key, write_plan({**document, "nonce": nonce}))
        record["plan"] = {"key": key, "etag": etag}
        self.write_record(record)

    def write_sets(self, change: Callable[[documents.Pending], documents.Pending]) -> None:
        """Forge every pendingset, sealed anew, and make the plan name them."""
        plan = self.plan()
        for key in self.s3.keys(self.directory):
            if not key.endswith(".pendingset"):
                continue
            read = documents.decode_pendingset(self.s3.body(key), key)
            forged = documents.new_pendingset(
                job_id=read.job_id,
                commits=[change(pending) for pending in read.commits],
                extra_data=read.extra_data or {},
                iostatistics=read.iostatistics or {},
            )
            etag = self.put(key, documents.encode_pendingset(forged, "objects", source=key))
            for row in plan["sets"] if plan is not None else ():
                if key.endswith(row[0]):
                    row[1] = etag
        if plan is not None:
            self.write_plan(plan)

    def operators_come(self) -> Counter[str]:
        """Everybody who obeys records, one after the other; what they met."""
        met: Counter[str] = Counter()
        calls: tuple[Callable[[], object], ...] = (
            lambda: mc.inspect(DEST),
            lambda: mc.recover(DEST, self.job.id, dead_after=0),
            lambda: mc.abort(DEST, self.job.id, revert=True),
            lambda: mc.attach(DEST, self.job.id).commit(expect=2),
            lambda: mc.cleanup(
                DEST, dead_after=0, leftover_after=0, forget_after=0, forget_given_after=0
            ),
        )
        for call in calls:
            try:
                call()
            except mc.MagicError as error:
                met[type(error).__name__] += 1
            else:
                met["done"] += 1
        return met


# One by one: what was found by running ------------------------------------------------------------


def rows(plan: Json, field: str, row: Any) -> Json:
    """A plan with one row more."""
    return {**plan, field: [*plan[field], row]}


FORGED_PLANS: dict[str, Callable[[Attack, Json], Json]] = {
    "an object elsewhere is to go": lambda a, p: rows(
        p, "deletes", ["other/data.csv", a.etag("other/data.csv"), 0.0]
    ),
    "a control object is to go": lambda a, p: rows(
        p, "deletes", [f"{a.directory}_job.json", a.etag(f"{a.directory}_job.json"), 0.0]
    ),
    "another marker is to go": lambda a, p: {
        **p, "marker": {"key": "other/_SUCCESS", "etag": a.etag("other/_SUCCESS")}
    },
    "a set of another directory": lambda a, p: rows(
        p, "sets", ["../__magic_job-x/job-x/00/a.pendingset", '"e"', "9", "a"]
    ),
    "another job": lambda a, p: {**p, "job_id": "x"},
    "another UUID": lambda a, p: {**p, "uuid": "0" * 32},
    "a set twice": lambda a, p: {**p, "sets": p["sets"][:1] * 2},
}  # fmt: skip


@pytest.mark.parametrize("state", ["committing", "completed", "reverting"])
@pytest.mark.parametrize("forgery", FORGED_PLANS)
def test_a_forged_plan_is_refused_whole(
    s3: MemoryStore, machine: Machine, state: str, forgery: str
) -> None:
    """I6: nobody executes a plan that names what is not the job's; the error says what it is."""
    attack = Attack(s3, machine, state, "replace")
    plan = attack.plan()
    assert plan is not None
    attack.write_plan(FORGED_PLANS[forgery](attack, plan))
    at_home = {k: s3.body(k) for k in s3.keys("t/") if "/__magic" not in k}
    with pytest.raises(mc.MagicError) as raised:
        mc.recover(DEST, attack.job.id)
    told = f"{raised.value} {raised.value.__cause__}"
    assert any(word in told for word in ("deletes", "marker", "sets", "job_id", "uuid")), told
    machine.later(2 * DAY)
    assert mc.cleanup(DEST).errors
    assert attack.outside() == attack.before
    assert {k: s3.body(k) for k in s3.keys("t/") if "/__magic" not in k} == at_home


@pytest.mark.parametrize(
    ("mode", "key", "told"),
    [
        ("append", "t/old.csv", "replaces nothing"),
        ("fail", "t/old.csv", "replaces nothing"),
        # where no other job by partition has looked
        ("replace_partitions", "t/p=9/old.csv", "in no partition"),
    ],
)
def test_a_plan_deletes_what_its_job_may_and_nothing_else(
    s3: MemoryStore, machine: Machine, mode: Mode, key: str, told: str
) -> None:
    """I6: it is refused where the mode, which the record tells, replaces nothing, or not there."""
    attack = Attack(s3, machine, "completed", mode)
    s3.put_object(key, b"old")
    plan = attack.plan()
    assert plan is not None
    attack.write_plan(rows(plan, "deletes", [key, attack.etag(key), 0.0]))
    with pytest.raises(mc.MagicError) as raised:
        mc.recover(DEST, attack.job.id)
    assert told in f"{raised.value} {raised.value.__cause__}"
    assert s3.body(key) == b"old"


FORGED_COMMITS: dict[str, Callable[[Attack, documents.Pending], Json]] = {
    "another program's open upload": lambda a, p: {
        "destination_key": "other/open.csv",
        "upload_id": a.upload,
        "etags": (documents.UploadEtag(a.part_etag, None, None),),
        "length": 4,
    },
    "another job's committed object": lambda a, p: {
        "destination_key": "other/published.csv",
        "extra_data": {**(p.extra_data or {}), "magic-committer.token": a.token},
    },
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("forgery", FORGED_COMMITS)
def test_what_is_anothers_is_neither_completed_nor_aborted_nor_reverted(
    s3: MemoryStore, machine: Machine, state: str, forgery: str
) -> None:
    """I6: a forged pendingset names an upload or an object elsewhere, with the token that it
    carries: it is left as it is."""
    attack = Attack(s3, machine, state, "append")
    attack.write_sets(lambda pending: replace(pending, **FORGED_COMMITS[forgery](attack, pending)))
    if forgery == "another job's committed object" and state in ("committing", "reverting"):
        with suppress(mc.MagicError):
            mc.abort(DEST, attack.job.id, revert=True)
    attack.operators_come()
    assert attack.outside() == attack.before


FORGED_RECORDS: dict[str, Json] = {
    "of another id": {"id": "x"},
    "with no UUID": {"uuid": "../../other"},
    "with a plan elsewhere": {"plan": {"key": "other/_plan-1.json", "etag": '"e"'}},
    "with a plan of another name": {"plan": {"key": "t/__magic_job-j/x.json", "etag": '"e"'}},
    "with a marker elsewhere": {"marker": {"key": "other/_SUCCESS", "etag": '"e"'}},
    "adopted elsewhere": {"adopted": "../other/"},
}


@pytest.mark.parametrize("forgery", FORGED_RECORDS)
def test_a_forged_record_is_refused(s3: MemoryStore, machine: Machine, forgery: str) -> None:
    """I6: a record speaks of its own directory and destination only."""
    attack = Attack(s3, machine, "committing", "replace")
    attack.write_record({**attack.record(), **FORGED_RECORDS[forgery]})
    with pytest.raises(mc.FormatError):
        mc.recover(DEST, attack.job.id)
    attack.operators_come()
    assert attack.outside() == attack.before


def test_a_copy_of_a_record_in_another_directory_is_refused(s3: MemoryStore) -> None:
    """I6: a record that lies in the directory of another id speaks for no job: whoever ends that
    other id does not end the job whose record was copied."""
    job = mc.start(DEST, job_id="a")
    s3.put_object("t/__magic_job-b/_job.json", s3.body("t/__magic_job-a/_job.json"))
    for end in (mc.attach, mc.abort, mc.recover):
        with pytest.raises(mc.FormatError, match="the record of another job"):
            end(DEST, "b")
    assert job.state == "running"


def test_a_drawn_id_is_its_uuid(s3: MemoryStore) -> None:
    """I6: a record of a drawn id cannot speak in the name of another job."""
    job = mc.start(DEST)
    key = f"t/__magic_job-{job.id}/_job.json"
    record = orjson.loads(s3.body(key))
    s3.put_object(key, orjson.dumps({**record, "uuid": "0" * 32}))
    with pytest.raises(mc.FormatError, match="uuid"):
        mc.attach(DEST, job.id)


# Huge counts --------------------------------------------------------------------------------------

HUGE: list[tuple[str, Any]] = [
    ("length", 2**63 - 1),
    ("created", 2**63 - 1),
    ("etags", tuple(documents.UploadEtag('"e"') for _ in range(10_000))),
    ("extra_data", {"magic-committer.part-bytes": "1*10000," * 5_000}),
    ("extra_data", {"magic-committer.part-bytes": "9999999999999*10000"}),
    ("extra_data", {"magic-committer.part-bytes": "0*0," * 50_000}),
    ("extra_data", {str(number): "" for number in range(5_000)}),
    ("iostatistics", {"counters": {"stream_write_bytes": 2**63 - 1}}),
]
"""Fields of a pendingset's commits, and values that are far too large or far too many."""
PEAK_MAX = 64 * 1024**2


HUGE_PLANS: dict[str, Callable[[Json], Json]] = {
    "files": lambda p: {**p, "files": 2**63 - 1},
    "bytes": lambda p: {**p, "bytes": 2**63 - 1},
    "files beyond 64 bits": lambda p: {**p, "files": 2**64 - 1},
    "sets": lambda p: {**p, "sets": p["sets"] * 2_000},
    "deletes": lambda p: {**p, "deletes": [["t/x", "", 0]] * 500},
    "partitions": lambda p: {**p, "partitions": [""] * 20_000},
    "nothing": lambda p: {**p, "sets": [[]] * 200_000},
    "nested": lambda p: {**p, "marker": [[[[["x"]]]]]},
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("what", [*HUGE_PLANS, *range(len(HUGE))])
def test_huge_counts_take_no_huge_memory(
    s3: MemoryStore, machine: Machine, state: str, what: str | int
) -> None:
    """Whatever numbers a forged plan or pendingset tells, and however many rows it has: whoever
    obeys records holds no more for them than their bytes, and acts nowhere else."""
    attack = Attack(s3, machine, state, "append" if isinstance(what, int) else "replace")
    size = 0
    if isinstance(what, int):
        with suppress(mc.MagicError):  # what no writer writes is not there
            attack.write_sets(partial(replace, **dict([HUGE[what]])))
    elif (plan := attack.plan()) is not None:
        attack.write_plan(HUGE_PLANS[what](plan))
        size = len(s3.body(attack.record()["plan"]["key"]))
    else:
        assert state not in ("committing", "completed", "reverting")
        return
    tracemalloc.start()
    try:
        attack.operators_come()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < size + PEAK_MAX, f"{peak >> 20} MiB for {size >> 20}"
    assert attack.outside() == attack.before


# By seed ------------------------------------------------------------------------------------------


def forge(attack: Attack, chance: random.Random) -> None:
    """Change one to three things that are stored, everywhere else as they fit."""
    values: list[Any] = [
        "other/data.csv", "other/open.csv", "other/published.csv", "other/_SUCCESS", "_SUCCESS", "",
        "t/old.csv", "t/", "/", "t/../other/data.csv", attack.upload, attack.token,
        attack.etag("other/data.csv"), attack.directory, "other", "x" * 2000, 0, None, -1, [],
        True, {}, "running", "reverting", "committing", "completed", "closed", "replace", "append",
        2**40, 2**63 - 1, 2**63, 1e300, "\u202e", "\x00", "reverted", "aborting", [[]] * 99,
    ]  # fmt: skip

    def change(document: Any) -> Any:
        """One leaf, or one more row."""
        if isinstance(document, dict) and document:
            key = chance.choice(list(document))
            return {**document, key: change(document[key])}
        if isinstance(document, list) and document and chance.random() < 0.8:
            at = chance.randrange(len(document))
            return [*document[:at], change(document[at]), *document[at + 1 :]]
        if isinstance(document, list) and document and chance.random() < 0.3:
            return document * chance.choice([2, 30])
        if isinstance(document, list):
            return [*document, ["other/data.csv", attack.etag("other/data.csv"), 0.0]]
        return chance.choice(values)

    for _ in range(chance.randint(1, 3)):
        what = chance.random()
        plan = attack.plan()
        if what < 0.4 and plan is not None:
            attack.write_plan(change(plan))
        elif what < 0.7:
            value = chance.choice(["other/data.csv", "other/open.csv", attack.upload, "t/x", "t"])
            changes: Json = {chance.choice(["destination_key", "upload_id"]): value}
            if chance.random() < 0.3:
                changes = dict([chance.choice(HUGE)])
            attack.write_sets(partial(replace, **changes))
        else:
            attack.write_record(change(attack.record()))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("state", STATES)
def test_whatever_is_forged_nothing_elsewhere_is_touched(state: str, mode: Mode) -> None:
    """I6: seeded forgeries of the records, plans and pendingsets of every state: operators fail or
    do their work below the destination, and leave the rest of the bucket as it is."""
    met: Counter[str] = Counter()
    for seed in SEEDS:
        clock = PatientClock()
        with memory_store(clock=clock) as s3:
            attack = Attack(s3, Machine(s3, clock), state, mode)
            chance = random.Random(f"{state} {mode} {seed}")
            with suppress(mc.MagicError, TypeError, KeyError, AttributeError, ValueError):
                forge(attack, chance)  # a forgery may spoil the next one
            met += attack.operators_come()
            assert attack.outside() == attack.before, seed
            s3.before = s3.after = None
            bury()
    assert met["FormatError"] or met["CommitIncomplete"] or state == "closed", met
    assert met["done"], met
