"""The mutants written by hand: each is a mistake that somebody made, or nearly made, or could make
at the next refactoring, and the promise that it breaks."""

from __future__ import annotations

from tests.mutants.by_hand_faces import FACES
from tests.mutants.by_hand_files import FILES
from tests.mutants.by_hand_manifest import MANIFEST
from tests.mutants.by_hand_rules import RULES
from tests.mutants.by_hand_running import RUNNING
from tests.mutants.by_hand_spark import SPARK
from tests.mutants.by_hand_staged import STAGING
from tests.mutants.by_hand_staging import LOCAL_FILES
from tests.mutants.by_hand_streams import STREAMS
from tests.mutants.by_hand_trees import TREES
from tests.mutants.handwork import Hand

RECORDS, MARKER, SWEEP = "commit/records.py", "commit/success_marker.py", "commit/sweep.py"
WRITING = "writing.py"
COMPLETE, CHECK = "commit/complete.py", "commit/check.py"
STEPS = "commit/steps.py"
STATE, CONFLICT, DELETES = "commit/upload_state.py", "commit/conflict.py", "commit/revert.py"
UNDO, LOAD, PLAN = "commit/revert.py", "commit/load.py", "protocol/plan.py"
CLOSED, READY = "commit/closed.py", "commit/ready.py"
MAGIC, ENDS = "committers/magic", "committers/ends.py"
FENCE, ATTEMPT, SET = "commit/fence.py", f"{MAGIC}/attempt.py", "commit/pendingset.py"
PURE, PLAIN = "protocol/rules.py", "commit/plain.py"
JOB_COMMIT, PUBLISH = "commit/job_commit.py", "commit/publish.py"
PREPARE, SETUP = "commit/prepare.py", "commit/setup.py"
TREE, ALIVE, TASK_UNDO = f"{MAGIC}/tree.py", "commit/fence.py", f"{MAGIC}/abort.py"
TIDY, CLEARING = "maintenance/cleanup.py", "maintenance/abort_uploads.py"
FINISH, ADOPTION, OWNERS = (
    "maintenance/ending.py",
    "maintenance/adopt.py",
    "maintenance/attribution.py",
)
UPLOADS, LOOK = "maintenance/uploads.py", "maintenance/inspect.py"

_THE_RECORD = (
    Hand(
        "swap told by its state", RECORDS, "swap",
        (("now.record.nonce == record.nonce", "now.record.state is record.state"),),
        "I10: two drivers decide the same, the loser of the swap takes the winner's record for its"
        " own, and executes its own plan",
    ),
    Hand(
        "create told by its id", RECORDS, "create",
        (("now.record.nonce == record.nonce", "now.record.id == record.id"),),
        "a job id is used once: two starters of one given id both hold the job",
    ),
    Hand(
        "409 on the swap is success", RECORDS, "swap",
        ((
            "refused = isinstance(error, PreconditionFailed)",
            "if isinstance(error, WriteConflict):\n"
            "    there = runtime.store.head(leaves.key)\n"
            "    return Swapped(True, Seen(leaves.key, record, there.etag, 0.0, 0.0))\n"
            "refused = isinstance(error, PreconditionFailed)",
        ),),
        "I3, I10: another writer was faster, and this one believes that it has decided",
    ),
    Hand(
        "an unanswered swap has lost", RECORDS, "swap",
        (("not same_etag(now.etag, leaves.etag)", "True"),),
        "I10: the old state is read, 'not decided' is told, the swap lands",
    ),
    Hand(
        "a lost swap obeys the next job of the id", RECORDS, "swap",
        (("now.record.uuid != record.uuid", "False"),),
        "I6: an abort that slept for 30 days reverts the job that has its id now",
    ),
    Hand(
        "ETags only quoted", RECORDS, "swap",
        (("if refused:\n    etag = other_quoting(etag)", "pass"),),
        "a store that wants If-Match without quotes (Ceph) decides nothing",
    ),
    Hand(
        "record deleted without If-Match", RECORDS, "remove",
        (("runtime.store.delete_one(leaves.key, if_match=etag)",
          "runtime.store.delete_one(leaves.key)"),),
        "I5: a record that another has moved on is deleted: the job can be finished by nobody",
    ),
    Hand(
        "another record is no record", RECORDS, "remove",
        (("if not same_etag(now.etag, leaves.etag):\n    return False",
          "if not same_etag(now.etag, leaves.etag):\n    return True"),),
        "the record is told to be gone, and stands",
    ),
    Hand(
        "without conditions, without looking", RECORDS, "_unconditional_swap",
        (("now is None or not same_etag(now.etag, leaves.etag)", "now is None"),),
        "conditional_writes='off': a driver decides over a decision that it could have read",
    ),
    Hand(
        "the record of an unreadable read-back", RECORDS, "_read_back",
        (("except StoreError:", "except Unanswered:"),),
        "I10: the swap may have won, and PermissionDenied is raised",
    ),
)  # fmt: skip

_THE_MARKER = (
    Hand(
        "record read before the marker", MARKER, "write_marker",
        ((
            "marker = None if absent and not number else read_marker(runtime, key)\n"
            "seen = records.read_own(runtime, own.key, own.record.uuid)",
            "seen = records.read_own(runtime, own.key, own.record.uuid)\n"
            "marker = read_marker(runtime, key)",
        ),),
        "I8: what the record says does not hold for the marker that is read afterwards",
    ),
    Hand(
        "marker without If-Match", MARKER, "write_marker",
        (("runtime.store.put(key, body, if_match=etag)", "runtime.store.put(key, body)"),),
        "I8: a late PUT overwrites the marker of a job that ran after ours",
    ),
    Hand(
        "marker without If-None-Match", MARKER, "write_marker",
        (("runtime.store.put(key, body, if_none_match=True)", "runtime.store.put(key, body)"),),
        "I8: a late PUT overwrites the marker of a job that ran after ours",
    ),
    Hand(
        "any marker may be replaced", PURE, "may_replace_marker",
        (("return marker.completed < completed", "return True"),),
        "I8: the marker of a job that completed later is overwritten",
    ),
    Hand(
        "the named marker is not known", PURE, "may_replace_marker",
        (("named is not None and named.is_same(marker.etag, marker.modified)", "False"),),
        "I8: of two jobs in one second the marker that was there before stays",
    ),
    Hand(
        "a foreign marker is old", MARKER, "read_marker",
        (("Marker(info.etag, '', info.last_modified, info.last_modified)",
          "Marker(info.etag, '', 0.0, info.last_modified)"),),
        "I8: a marker of Hadoop's that came later is overwritten",
    ),
    Hand(
        "a marker that cannot be read is old", MARKER, "read_marker",
        (("Marker(found.etag, '', found.last_modified, found.last_modified)",
          "Marker(found.etag, '', 0.0, found.last_modified)"),),
        "I8: a marker of Hadoop's with SSE-C that came later is overwritten",
    ),
    Hand(
        "the next job of the id is marked", MARKER, "write_marker",
        (("records.read_own(runtime, own.key, own.record.uuid)",
          "records.read(runtime, own.key)"),),
        "I8: a driver that slept for 30 days marks the job that has its id now",
    ),
    Hand(
        "marked in any state", MARKER, "write_marker",
        (("seen is None or seen.record.state is not State.COMPLETED", "seen is None"),),
        "I8: a job that somebody else has finished marks once more, days later",
    ),
    Hand(
        "completed by our clock", MARKER, "write_marker",
        (("repr(seen.last_modified)", "repr(runtime.clock.now())"),),
        "I8: a machine whose clock is ahead keeps all others from marking",
    ),
)  # fmt: skip

_THE_FENCE = (
    Hand(
        "a read covers what came after it", FENCE, "Fence._cover",
        (("self._covered = max(self._covered, covering)", "self._covered = self._answered"),),
        "I4: a Create answered while the record was read is never covered",
    ),
    Hand(
        "an unreadable fence stands", FENCE, "Fence._check",
        (("state = self._read()",
          "try:\n    state = self._read()\nexcept StoreError:\n    state = None"),),
        "I4: an attempt that may not read the record goes on without a fence",
        imports="from magic_committer.errors import StoreError",
    ),
    Hand(
        "forbidden means late", FENCE, "Fence._read",
        (("except NotFound:", "except (NotFound, PermissionDenied):"),),
        "I2: an attempt that a driver has accepted undoes itself because of a 403",
        imports="from magic_committer.errors import PermissionDenied",
    ),
    Hand(
        "hands on while committing", FENCE, "Fence.must_undo",
        (("found[0] in HANDS_OFF", "found[0] is State.RUNNING"),),
        "I2: a decided job loses an upload",
    ),
    Hand(
        "the fence of another run", FENCE, "Fence._read",
        (("seen is None or seen.record.uuid != self._job.uuid", "seen is None"),),
        "I4: a zombie takes another run's record of the same id for its own",
    ),
    Hand(
        "no second read", ATTEMPT, "Attempt._store",
        (("late = self._fence.must_undo() if not driver else None", "late = None"),),
        "I4: the pendingset that is stored after the sweep stays, and its uploads",
    ),
    Hand(
        "a block's set is left", WRITING, "Writing._undo",
        (("isinstance(error, JobNotRunning)", "False"),),
        "I4: what a block stored after the sweep of its aborted job stays",
    ),
    Hand(
        "a marker of after the look is not seen", MARKER, "write_marker",
        (("absent and not number", "absent"),),
        "I8: who saw no marker never looks again, and is refused for ever",
    ),
    Hand(
        "no first read", ATTEMPT, "Attempt._store", (("self._fence.check()", "pass"),),
        "I4: a zombie stores what it has",
    ),
    Hand(
        "no read after a .pending", ATTEMPT, "Attempt._save",
        (("self._saved.late(pending) if self._saved.shared else None", "None"),),
        "I4: a .pending that lands after the sweep stays",
    ),
)  # fmt: skip

_ATTEMPTS = (
    Hand(
        "the twin by its key's prefix", TASK_UNDO, "RetriedCreates.abort_if_late",
        (("upload.key == key", "True"),
         ("UploadName(key, upload.upload_id)", "UploadName(upload.key, upload.upload_id)")),
        "I6: the upload of another file, whose name begins alike, is aborted",
    ),
    Hand(
        "the twin of any name", TASK_UNDO, "RetriedCreates.add",
        (("uuid_in_name(key) == self._job.uuid", "True"),),
        "I6: an upload of a name that anybody may write is aborted",
    ),
    Hand(
        "the twin while committing", TASK_UNDO, "RetriedCreates.abort_if_late",
        (("late is None or State(late.state) in HANDS_OFF", "late is None"),),
        "I2: the twin that the plan names is aborted",
    ),
    Hand(
        "open files are left out", ENDS, "TaskAttempt._refuse_lost_files",
        (("if still_open:\n    raise FileStillOpen(\n"
          "        f'not closed: {name_some(still_open)} (of attempt {self.attempt!r})',\n"
          "        job_id=self.job.id,\n"
          "        hint=CLOSE_FIRST,\n    )", "pass"),),
        "I2: a task commits without a file that it has not closed",
    ),
    Hand(
        "failed files are left out", ENDS, "TaskAttempt._refuse_lost_files",
        (("state is FileState.FAILED", "False"),),
        "I2: a task commits without a file that failed",
    ),
    Hand(
        "closed files that are gone", ATTEMPT, "Attempt._gather",
        (("names(own) <= names(pendings)", "True"),),
        "I2: a task commits without a file whose .pending somebody deleted",
    ),
    Hand(
        "the tree goes with its failures", ATTEMPT, "Attempt._abort", (("not failures", "True"),),
        "I4: what names an upload that could not be aborted is deleted",
    ),
    Hand(
        "a pendingset over another", SET, "AttemptSet.put_once",
        (("self._runtime.store.put(self.key, body, metadata=self.metadata,"
          " content_type='application/json', if_none_match=True)",
          "self._runtime.store.put(self.key, body, metadata=self.metadata,"
          " content_type='application/json')"),),
        "I2: a second attempt of the same name replaces what a driver has accepted",
    ),
    Hand(
        "a set with other files", SET, "AttemptSet._with",
        (("there.stored is None or not names(pendings) <= names(there.stored.pendings)",
          "there.stored is None"),),
        "I2: a task is told committed with the files of another attempt",
    ),
    Hand(
        "a set of another run", SET, "AttemptSet.read",
        (("(stored.info.metadata or {}).get(JOB_METADATA) != self._job.uuid", "False"),),
        "I2: what a zombie of another run stored counts as this attempt's",
    ),
    Hand(
        "sent and undone", "protocol/rules.py", "may_undo",
        (("return phase is not Phase.SENT and found is Found.NOTHING",
          "return found is Found.NOTHING"),),
        "I2: the PUT is unanswered, the attempt is undone, the PUT lands, a driver accepts it",
    ),
    Hand(
        "committed and undone", "protocol/rules.py", "may_undo",
        (("if phase is Phase.COMMITTED:\n    return False", "pass"),),
        "I2: a committed attempt is undone",
    ),
    Hand(
        "any .pending of the name is ours", TREE, "AttemptTree._load",
        (("saved is not None and same_etag(saved[0], self._found[key].etag)",
          "saved is not None"),),
        "I2: another handle has closed the file anew, and its upload is what the job must publish",
    ),
    Hand(
        "a .pending of another run", TREE, "AttemptTree._load",
        (("(stored.info.metadata or {}).get(JOB_METADATA) != self._job.uuid or not"
          " upload.token.startswith(f'{self._job.uuid}.{self._attempt}.')", "False"),),
        "I2: what another run's zombie left in the tree is committed with the attempt",
    ),
    Hand(
        "the sign stays", ALIVE, "SignOfLife.give",
        (("self._take_back()\nreturn False", "return False"),),
        "I4: a driver that was paused leaves its sign after the sweep",
    ),
)  # fmt: skip

_DECIDING = (
    Hand(
        "plans looked at never", JOB_COMMIT, "JobCommit._store_plan",
        (("refuse_overlapping_plans(self.runtime, self.job, self.dest, partitions)", "pass"),),
        "two jobs of one partition both commit",
    ),
    Hand(
        "results of another job", PREPARE, "wanted_results",
        (("result.job_uuid != job.uuid", "False"),),
        "I2: a result of another run is committed",
    ),
    Hand(
        "two results of one task", PREPARE, "wanted_results",
        (("result.task in tasks", "False"),),
        "I2: two attempts of one task are committed",
    ),
    Hand(
        "a job of results from a listing", PREPARE, "wanted_results",
        (("job.terms.accept == 'results'", "False"),),
        "I9: an attempt whose input was cut is committed",
    ),
    Hand(
        "any version of the set", PREPARE, "load_sets",
        (("SetRef(r.key, r.etag, r.task, r.attempt, r.pendingset_bytes,"
          " r.body if isinstance(r, OwnCommit) else b'')",
          "SetRef(r.key, '', r.task, r.attempt, r.pendingset_bytes)"),),
        "I2: not what the task's message says is committed, but what lies there",
    ),
    Hand(
        "any number of files", PREPARE, "load_sets",
        (("(one.files, one.bytes) != (result.files, result.bytes)", "False"),),
        "I2: a result that tells of other files is committed",
    ),
    Hand(
        "a set from anywhere", PREPARE, "load_sets",
        (("result.key != job.paths.pendingset(result.attempt)", "False"),),
        "I2: a result may name any object",
    ),
    Hand(
        "who obeys says that nothing was decided", JOB_COMMIT, "JobCommit._obey",
        (("interrupted(unread(self.job))", "interrupted(undecided(self.job))"),),
        "I10: Ctrl-C in a commit of a decided job: its note says that nothing is visible",
    ),
    Hand(
        "a refused job that is swept is to be committed again", JOB_COMMIT, "JobCommit._abandon",
        (("interrupted(half_aborted(self.job))", "interrupted(undecided(self.job))"),),
        "I10: Ctrl-C while a refused job is swept: its note says to commit it again",
    ),
    Hand(
        "what was last read is told as what is", JOB_COMMIT, "JobCommit._moved_on",
        (("as_last_read(failure, error)", "failure"),),
        "I10: a job is told as committed that another process has undone",
    ),
    Hand(
        "refused though decided", JOB_COMMIT, "JobCommit._refuse",
        (("if not swapped.won:\n    return swapped.now", "pass"),),
        "I10: a check that another's work made fail is raised, of a job that committed",
    ),
    Hand(
        "the plan of a swap that may have won", JOB_COMMIT, "JobCommit._swap_to_committing",
        (("swapped.now is None or not _names(swapped.now, offer.plan.key)", "True"),),
        "I5: the plan of a decided job is deleted",
    ),
    Hand(
        "an adopted job is refused for good", JOB_COMMIT, "JobCommit._offer",
        (("problems and self.job.adopted", "False"),),
        "a Hadoop job that cannot be run again is aborted because one upload is gone",
    ),
    Hand(
        "rewritten and deleted", CONFLICT, "replaced",
        (("info.key not in rewritten", "True"),),
        "I7: a file that the job has rewritten in place is deleted",
    ),
    Hand(
        "revert whatever the state", JOB_COMMIT, "JobCommit.abort",
        (("seen is not None and seen.record.state is State.COMMITTING and revert",
          "seen is not None and seen.record.state is State.COMMITTING"),),
        "I2: abort() undoes a decided job",
    ),
    Hand(
        "a given id goes", JOB_COMMIT, "JobCommit.may_remove",
        (("self.job.undisturbed and not self.job.given_id", "self.job.undisturbed"),),
        "I10: a second run of the id cannot be told from the first",
    ),
    Hand(
        "a missing set is fine", JOB_COMMIT, "JobCommit._publish_stored",
        (("StoredSource(self.runtime, self.job, plan, missing_is_fine=completed)",
          "StoredSource(self.runtime, self.job, plan, missing_is_fine=True)"),),
        "I2: a decided job is told committed without the files of a set that is gone",
    ),
    Hand(
        "the last sweep does not look", JOB_COMMIT, "JobCommit._publish_stored",
        (("self._sweep(look_first=True)", "self._sweep(look_first=False)"),),
        "I2: a completed upload is aborted, which costs the object on some stores",
    ),
    Hand(
        "absent and aborted", JOB_COMMIT, "JobCommit.abort", (("self._without_record()", "pass"),),
        "I10: abort() of a job without record is told that it committed",
    ),
    Hand(
        "a setup sent twice simply goes", SETUP, "_withdraw",
        (("job.undisturbed and not job.given_id and records.remove(runtime, seen)",
          "not job.given_id and records.remove(runtime, seen)"),),
        "I4: the record's late PUT brings a job back that nobody drives",
    ),
    Hand(
        "a used directory", SETUP, "setup_job",
        (("_refuse_used_directory(runtime, paths)", "pass"),),
        "I2: a given id is used in a directory where a zombie's work lies",
    ),
    Hand(
        "a proof that may land late", SETUP, "setup_job", (("_may_have_sent(error)", "False"),),
        "I4: a setup whose proof was not answered is withdrawn as if nothing could land",
    ),
)  # fmt: skip

_AT_ONCE = (
    Hand(
        "a distrusted store is believed", COMPLETE, "_go_on",
        (("distrust or number or answer.attempts > 1", "number or answer.attempts > 1"),),
        "I2: the 200 of a store that answers falsely, or to a stored plan, is believed",
    ),
    Hand(
        "no condition goes with a Complete", COMPLETE, "_send",
        (("as_request(upload, if_none_match)", "as_request(upload, False)"),),
        "I6: mode fail completes over a neighbour's object",
    ),
    Hand(
        "many at once are given up half way", "stores/s3/many.py", "ask_each",
        (("doing.loop.flying and (until is None or monotonic() < until)", "False"),),
        "I2: MinIO loses an upload whose client hangs up during Complete",
    ),
    Hand(
        "what waits for its next try is forgotten", "stores/s3/many.py", "_Doing._failed",
        (("heapq.heappush(self._waiting, (due, next(self._numbers), flight))",
          "self.held -= 1"),),
        "I2: a file whose Complete failed once is in no list, and the job is told to be committed",
    ),
    Hand(
        "many at once do not heed SlowDown", "stores/s3/many.py", "Window.answered",
        (("self.size = max(1, self.size // 2)", "pass"),),
        "a store that asks for fewer requests gets as many as before",
    ),
    Hand(
        "an abort on an old look", STEPS, "_AtOnce._next",
        (("since > LOOK_SECONDS_MAX", "False"),),
        "I2: an upload that was completed while the caller paused is aborted, with its object",
    ),
    Hand(
        "an abort that was never sent counts", STEPS, "_AtOnce._go_on",
        (("work.aborts or not isinstance(answer, StoreError) or answer.sent", "True"),),
        "an upload that another program has ended is told to be aborted",
    ),
    Hand(
        "an error of the works is swallowed", STEPS, "_AtOnce.run",
        (("self._broken is not None", "False"),),
        "I2: a set that cannot be read ends the commit as if there were no more files",
    ),
    Hand(
        "more works than were allowed", STEPS, "_AtOnce._begin",
        (("not self._takes or self._begun >= self._in_flight", "not self._takes"),),
        "a plan of 100,000 files is in memory at once",
    ),
    Hand(
        "any 404 is a proof", "commit/upload_state.py", "UploadRemover._is_gone",
        (("last or error.code == NO_UPLOAD", "True"),),
        "I4: an upload that is open is told to be aborted: 404 was said of something else",
    ),
    Hand(
        "an abort that failed is sent on its old look", "commit/upload_state.py",
        "UploadRemover.removing",
        (("failed is not None or not number", "not number"),),
        "I2: an upload that was completed meanwhile is aborted, with its object",
    ),
    Hand(
        "an abort that follows a look is tried again by itself", "commit/upload_state.py",
        "UploadRemover.removing",
        (("AbortUpload(upload.key, upload.upload_id, once=self._look_first)",
          "AbortUpload(upload.key, upload.upload_id)"),),
        "I2: an upload that was completed meanwhile is aborted, with its object",
    ),
    Hand(
        "a page of parts is all of them", "stores/s3/client.py", "S3Store._listing_parts",
        (('not reply.get("IsTruncated")', "True"),),
        "I5: an upload of more than 1,000 parts is taken for one that has lost the others",
    ),
)  # fmt: skip

_EXECUTING = (
    Hand(
        "accept swallows what is unfinished", PUBLISH, "Publication.complete_all",
        (("completion is not Completion.UNFINISHED and key in self.accept", "key in self.accept"),),
        "I2: a file whose upload is still open is called accepted, and swept",
    ),
    Hand(
        "accept swallows nothing", PUBLISH, "Publication.complete_all",
        (("completion is not Completion.UNFINISHED and key in self.accept", "False"),),
        "what the operator accepts stays unresolved for ever",
    ),
    Hand(
        "fail overwrites", PUBLISH, "Publication.complete_all",
        (("self.job.terms.mode in FAILING", "False"),),
        "I6: mode fail completes over a neighbour's object",
    ),
    Hand(
        "the sweep after failed deletes", PUBLISH, "Publication.delete_replaced",
        (("failures[outcome.item.key] = outcome.error",
          "self.warnings.append(str(outcome.error))"),),
        "I7: what could not be deleted is a warning, and is forgotten with the plan",
    ),
    Hand(
        "the sweep after no marker", JOB_COMMIT, "JobCommit._go_on",
        (("publication.mark(now, just_now=just_now)",
          "publication.mark(now, just_now=just_now) is not None"),),
        "I8: the job is finished without its marker, and nobody writes it",
    ),
    Hand(
        "the plan's uploads are not spared", PUBLISH, "Publication.sweep",
        (("self.names.__contains__", "lambda name: False"),),
        "I2: the sweep aborts what the plan names, which costs the object on some stores",
    ),
    Hand(
        "complete whatever the record says", JOB_COMMIT, "JobCommit._go_on",
        (("state is State.CLOSED and now.record.outcome == 'committed'", "False"),
         ("state is not State.COMPLETED", "False")),
        "I7: old data is deleted after a revert",
    ),
    Hand(
        "no look at what completed", COMPLETE, "_settle",
        (("look.state is UploadState.VISIBLE", "False"),),
        "I5: a second executor takes its own success for a conflict, and reverts the job",
    ),
    Hand(
        "any stored part", COMPLETE, "same_parts",
        (("ours.number != theirs.number or not same_bytes", "ours.number != theirs.number"),),
        "I2: a part of other bytes under the same upload is completed",
    ),
    Hand(
        "any number of parts", COMPLETE, "same_parts",
        (("len(stored) != len(upload.parts)", "False"),
         ("zip(upload.parts, stored, strict=True)", "zip(upload.parts, stored)")),
        "I2: an upload with fewer parts than were sent is completed",
    ),
    Hand(
        "forbidden raises", STATE, "looking",
        (("except StoreError:", "except Unanswered:"),),
        "I10: a HEAD that is forbidden ends the commit with an error that claims nothing decided",
        times=3,
    ),
    Hand(
        "revert deletes without ETag", UNDO, "_each",
        (("delete_if_same(runtime, info.key, info.etag, info.version_id,"
          " modified=info.last_modified)", "runtime.store.delete_one(info.key)"),),
        "I6: a neighbour writes the key between the look and the delete, and loses it",
    ),
    Hand(
        "revert deletes whatever is there", UNDO, "_became", (("became(upload, info)", "True"),),
        "I6: a neighbour's object is deleted",
    ),
    Hand(
        "look, then abort", UNDO, "_each",
        (("info = _became(runtime, upload)", "info = looked[upload.name]"),
         ("removals = ((upload, remover.to_remove(UploadName.of(upload))) for upload in uploads)",
          "looked = {}\n"
          "def look(upload):\n"
          "    looked[upload.name] = _became(runtime, upload)\n"
          "    return upload, remover.to_remove(UploadName.of(upload))\n"
          "removals = map(look, uploads)")),
        "I3: a Complete between the look and the abort stays visible",
    ),
    Hand(
        "reverted in spite of failures", JOB_COMMIT, "JobCommit._undo",
        (("failure is None", "True"),),
        "I3: a file of a reverted job stays visible",
    ),
    Hand(
        "deleted without If-Match", DELETES, "delete_if_same",
        (("runtime.store.delete_one(key, if_match=etag)", "runtime.store.delete_one(key)"),),
        "I6: what a neighbour writes between HEAD and DELETE is lost",
    ),
    Hand(
        "deleted without HEAD", DELETES, "delete_if_same",
        (("if not ref.is_same(info.etag, info.last_modified):\n    return False", "pass"),),
        "I6: a store that ignores the condition deletes a neighbour's object",
    ),
    Hand(
        "one odd refusal lifts the condition", DELETES, "delete_if_same",
        (("len(wrong) == DELETE_TRIES_MAX - 1", "wrong"),),
        "I6: after one odd 400 an old object is deleted whatever is there by now",
    ),
    Hand(
        "a file that is there again is reverted", UNDO, "_each",
        (("_became(runtime, upload) is not None", "False"),),
        "I3: the DELETE left the job's own file: the job is told to be reverted, and it is visible",
    ),
    Hand(
        "surplus tasks are expected", CHECK, "expected",
        (("not missing and not surplus", "not missing"),),
        "a commit with expect=[...] publishes tasks that nobody named",
    ),
    Hand(
        "litter has the age of its listing", TIDY, "Cleaning._take",
        (("not self._old(now)", "False"),),
        "I6: what a process stores while a cleanup looks is taken at once",
    ),
    Hand(
        "a closed record speaks for other runs", TIDY, "Cleaning._take",
        (("known_over and token != known_over", "False"),),
        "I6: objects of a run that is not known to be over are deleted",
    ),
    Hand(
        "litter goes before its uploads", TIDY, "Cleaning._take",
        (("if left:\n    self._counts['uploads_aborted'] += aborted\n    return None",
          "pass"),),
        "I4: an upload that could not be aborted is named by nothing any more",
    ),
    Hand(
        "a record is not looked for again", TIDY, "Cleaning._is_over_here",
        (("seen is not None and seen.record.uuid == token", "False"),),
        "I2: what a live job has stored is taken as litter",
    ),
    Hand(
        "the tree of a given id goes whole", TREE, "AttemptTree.remove",
        (("self._own if self._job.given_id else self._listed", "self._listed"),),
        "I6: a task's commit deletes what another run has under the same id",
    ),
    Hand(
        "an abort lets files in", ENDS, "Turns.check_open",
        (("self._aborting", "False"),),
        "a file is opened while its attempt is being aborted, and its writer is not told",
    ),
    Hand(
        "a conflict means deleted", DELETES, "delete_if_same",
        (("answers.append(error)",
          "if isinstance(error, WriteConflict):\n    return True\nanswers.append(error)"),),
        "I7: an object that could not be deleted is told to be gone", times=2,
    ),
    Hand(
        "a conflict means another object", DELETES, "delete_if_same",
        (("answers.append(error)",
          "if isinstance(error, WriteConflict):\n    return False\nanswers.append(error)"),),
        "I7: an object that is still the same is left for ever, without a word", times=2,
    ),
    Hand(
        "a set of any version", LOAD, "_parse",
        (("ref.etag and not same_etag(info.etag, ref.etag)", "False"),),
        "I2: a pendingset that was overwritten after the plan is executed",
    ),
    Hand(
        "a set of another bucket", LOAD, "_strict_rows", (("pending.bucket != bucket", "False"),),
        "I6: an upload id of another bucket is completed here",
    ),
    Hand(
        "a plain set of another bucket", PLAIN, "_row", (("place == bucket", "True"),),
        "I6: an upload id of another bucket is completed here",
    ),
    Hand(
        "a plain set of two jobs", PLAIN, "_row", (("job in ('', job_id)", "True"),),
        "I2: an upload of another job is completed",
    ),
    Hand(
        "a plain set whose sizes do not add up", READY, "part_sizes",
        (("len(sizes) != parts or sum(sizes) != length", "False"),),
        "I2: a part of other bytes under the same upload is completed",
    ),
    Hand(
        "a plain set with one key twice", PLAIN, "plain_set",
        (("len({row[0] for row in rows}) != len(rows)", "False"),),
        "a set that the strict reader refuses is accepted",
    ),
    Hand(
        "a plain set with a wrong seal", "hadoop/json.py", "parse_plain",
        (("(document, True) if seal == digest.hexdigest() else None", "(document, True)"),),
        "I2: a set that was changed after it was written is committed",
    ),
    Hand(
        "a plain name stands for its directory", READY, "RowCheck.problem",
        (("not _PLAIN_NAME.match(name) or name.endswith(_COMMITTERS_OWN)", "not name"),),
        "I6: a job publishes over a committer's file",
    ),
    Hand(
        "a set of another job", LOAD, "_parse",
        (("either.job_id not in ('', job_id)", "False"),),
        "I2: another job's pendingset is committed",
    ),
    Hand(
        "a plan of any version", "commit/load.py", "load_plan",
        (("not same_etag(stored.info.etag, ref.etag)", "False"),),
        "I2: two plans are mixed",
    ),
)  # fmt: skip

_CHECKING = (
    Hand(
        "the newest by its name", PURE, "_recency",
        (("return (candidate.last_modified, candidate.key)", "return (0.0, candidate.key)"),),
        "I2: not the newest attempt is committed",
    ),
    Hand(
        "another run's attempts", PURE, "choose_attempts", (("candidate.uuid != uuid", "False"),),
        "I2: a zombie's pendingset of another run of the id is committed",
    ),
    Hand(
        "two files of one name", CHECK, "_wrong", (("not destinations.add(row[0])", "False"),),
        "I2: one of two files is lost, without a word",
    ),
    Hand(
        "any token", READY, "RowCheck._is_ours", (("token.startswith(self._token)", "True"),),
        "I2: another job's upload is completed",
    ),
    Hand(
        "outside the destination", READY, "RowCheck._look",
        (("not self._dest.contains(key)", "False"),),
        "I6: a file is published outside the destination",
    ),
    Hand(
        "control objects as files", READY, "RowCheck._look",
        (("check_name(self._dest.relative(key))", "pass"),),
        "I6: a job publishes into a committer's directory",
    ),
    Hand(
        "the listing is the truth", CHECK, "missing_uploads",
        (("look.state not in (UploadState.OPEN, UploadState.VISIBLE)", "True"),),
        "a job is refused because a listing does not show its upload yet",
    ),
    Hand(
        "uploads are open", CHECK, "check_uploads", (("not checked.problems", "False"),),
        "a job is decided whose upload was aborted: it can never be finished",
    ),
    Hand(
        "accept is for all", CHECK, "check_uploads",
        (("upload.key in taken_as_is", "taken_as_is"),),
        "I2: the operator accepts one key, and all are taken",
    ),
    Hand(
        "other jobs that only run", CONFLICT, "_live_others",
        (("seen.record.state is not State.CLOSED", "seen.record.state is State.RUNNING"),),
        "I6: a replace begins while another commits",
    ),
    Hand(
        "given ids are tidied", CLOSED, "may_forget",
        (("FORGET_GIVEN_AFTER_SECONDS if record.given_id else FORGET_AFTER_SECONDS",
          "FORGET_AFTER_SECONDS"),),
        "a job id is used once: a driver that still asks finds another run's record",
    ),
    Hand(
        "young records are tidied", CLOSED, "may_forget",
        (("age_of(seen.seen_at, seen.last_modified) >= limit", "True"),),
        "I10: a driver that asks what became of its job is told that nobody knows",
    ),
    Hand(
        "partitions never meet", CONFLICT, "refuse_overlapping_plans",
        (("_announced(runtime, dest, other) & mine", "set[str]()"),),
        "two jobs of one partition both commit",
    ),
    Hand(
        "partitions exclude none", CONFLICT, "refuse_other_jobs",
        (("{job.terms.mode, theirs} <= BY_PARTITION",
          "bool({job.terms.mode, theirs} & BY_PARTITION)"),),
        "a replace of the whole and one by partition both commit",
    ),
)  # fmt: skip

_ONE_QUESTION = (
    Hand(
        "forbidden means gone", STATE, "looking",
        (("except NotFound:", "except (NotFound, PermissionDenied):"),),
        "I2: an open upload whose parts may not be listed is called gone, and its file is lost",
        imports="from magic_committer.errors import PermissionDenied",
    ),
    Hand(
        "forbidden means nothing there", STATE, "_at",
        (("except NotFound:", "except (NotFound, PermissionDenied):"),),
        "I2: an upload that became its object, which may not be read, is called gone",
        imports="from magic_committer.errors import PermissionDenied",
    ),
    Hand(
        "no second look", STATE, "looking",
        (("try:\n    there = yield from _object(runtime, upload)\nexcept StoreError as error:\n"
          "    return UploadLook(UploadState.UNKNOWN, error, there, ended=True)", "pass"),),
        "I5: an upload that was completed between the two looks is called gone",
    ),
    Hand(
        "nobody can tell means gone", STATE, "looking",
        (("UploadLook(UploadState.UNKNOWN, error)", "UploadLook(UploadState.GONE)"),),
        "I2: a store that does not answer makes an upload gone",
    ),
    Hand(
        "an abort without a look", STATE, "UploadRemover.removing",
        (("self._look_first and (failed is not None or not number)", "False"),),
        "I2: a completed upload is aborted, which costs the object on some stores",
    ),
    Hand(
        "an abort that is believed", STATE, "UploadRemover.removing",
        (("(yield from self._is_gone(upload))", "True"),),
        "I4: parts in flight outlive an abort",
    ),
    Hand(
        "aborted though nobody can tell", STATE, "UploadRemover._look",
        (("look.error is not None and not self._is_harmless(upload, look.error)", "False"),),
        "I2: an upload that may have been completed is aborted",
    ),
    Hand(
        "any token is ours", STATE, "became",
        (("(info.metadata or {}).get(TOKEN_METADATA) == upload.token",
          "TOKEN_METADATA in (info.metadata or {})"),),
        "I2: another job's object under the same key counts as ours",
    ),
)  # fmt: skip

_SWEEPING = (
    Hand(
        "everybody's uploads", SWEEP, "_Sweep.mine",
        (("uuid == self.job.uuid", "uuid is not None"),),
        "I6: a neighbour's uploads are aborted",
    ),
    Hand(
        "pendingsets before plans", SWEEP, "_Sweep.delete",
        (("(plans, others)", "(others, plans)"),),
        "I5: a plan is left whose pendingsets are gone",
    ),
    Hand(
        "what names uploads goes", SWEEP, "sweep",
        (("not swept.left and not run.unread", "True"),),
        "I4: an upload that could not be aborted is named by nothing any more",
    ),
    Hand(
        "one listing is enough", SWEEP, "", (("SWEEP_ROUNDS_MAX = 5", "SWEEP_ROUNDS_MAX = 1"),),
        "I4: parts in flight outlive an abort",
    ),
    Hand(
        "litter that names others' files", SWEEP, "_Sweep._read_named",
        (("not self.dest.contains(pending.destination_key)", "False"),),
        "I6: an upload outside the destination is aborted",
    ),
    Hand(
        "another run's leftovers", SWEEP, "_Sweep._read_named",
        (("not self.job.owns(metadata)", "False"),),
        "I6: the uploads of another run of the id are aborted",
    ),
    Hand(
        "the record goes with the litter", SWEEP, "_Sweep.control_objects",
        (("info.key != self.paths.record", "True"),),
        "I10: the record of a given id does not stay closed",
    ),
    Hand(
        "what the plan names", SWEEP, "_Sweep._targets",
        (("self.spared(name) or not known.add(name)", "not known.add(name)"),),
        "I2: an upload that the plan names is aborted",
    ),
    Hand(
        "swept without a look", SWEEP, "_Sweep._targets",
        (("self.look_first or name in self.ended", "name in self.ended"),),
        "I2: a completed upload is aborted, which costs the object on some stores",
    ),
)  # fmt: skip

_RECOVERING = (
    Hand(
        "ages without the second of grain", CLOSED, "age_of",
        (("max(0.0, seen_at - since - GRAIN_SECONDS)", "max(0.0, seen_at - since)"),),
        "a job that says every second that it lives is taken for dead after one",
    ),
    Hand(
        "a young job is recovered", FINISH, "_refuse_young",
        ((
            "refuse_younger(seen.record.id, age, dead_after,"
            " 'it is running, and may be alive', *ways)", "pass",
        ),),
        "I6: a live job is aborted",
    ),
    Hand(
        "absent and committed", FINISH, "_absent",
        (("committed_by_marker(runtime, job)", "True"),),
        "I10: a job that nobody knows is told committed",
    ),
    Hand(
        "adopted beside our tokens", ADOPTION, "_look",
        (("measured.ours or with_token(runtime, directory)", "''"),),
        "I1: what a zombie of ours writes late is published",
    ),
    Hand(
        "adopted at any age", ADOPTION, "_look",
        ((
            "refuse_younger(job_id, listing.age, dead_after,"
            " 'what its JVM sent last may still land', way)", "pass",
        ),),
        "a Hadoop job is adopted while its JVM writes",
    ),
    Hand(
        "the oldest attempt of Hadoop's", ADOPTION, "_choose",
        (("sorted(directories, reverse=True)", "sorted(directories)"),),
        "I2: the files of an attempt that Hadoop had given up are published",
    ),
    Hand(
        "records of the directory only", OWNERS, "Places.around",
        (("at_and_above(directory)", "[directory]"),),
        "I6: the uploads of a live job whose destination lies above are aborted",
    ),
    Hand(
        "cannot tell means over", OWNERS, "Places.is_over",
        (("return True if certain else None", "return True"),),
        "I6: where a record cannot be read its job's uploads are aborted",
    ),
    Hand(
        "decided means over", OWNERS, "Places.is_over",
        (("seen.record.state is State.CLOSED", "seen.record.state is not State.RUNNING"),),
        "I2: the uploads of a decided job are aborted by cleanup",
    ),
    Hand(
        "a listing is of its last page's time", LOOK, "Listing.__iter__",
        (("min(self._seen_at, info.seen_at)", "info.seen_at"),),
        "I6: a job that changed while a long listing of it was read is taken for dead",
    ),
    Hand(
        "litter of any age", TIDY, "Cleaning._old",
        (("age_of(info.seen_at, info.last_modified) >= self._limits.leftover_after", "True"),),
        "cleanup takes what was written a second ago",
    ),
    Hand(
        "litter without a token", TIDY, "Cleaning._take",
        (("not token or (known_over and token != known_over) or not self._old(now)",
          "bool(token and known_over and token != known_over) or not self._old(now)"),),
        "I6: cleanup deletes objects of Hadoop's and of others",
    ),
    Hand(
        "uploads of no age", TIDY, "Cleaning._abort_named",
        (("over and age is not None and age >= self._limits.leftover_after", "over"),),
        "cleanup aborts an upload that began a second ago",
    ),
    Hand(
        "given ids are forgotten", TIDY, "Cleaning._forget",
        (("limits.forget_given_after if given else limits.forget_after", "limits.forget_after"),),
        "I2: a given id is used again while a process of its first run may live",
    ),
    Hand(
        "litter of a job that lives again", TIDY, "Cleaning._is_over_here",
        (("seen is not None and seen.record.uuid == token", "False"),),
        "I6: what a running job has written is deleted as litter",
    ),
    Hand(
        "a dry run aborts", TIDY, "Cleaning._to_remove", (("self._dry_run", "False"),),
        "a look changes something",
    ),
    Hand(
        "a dead job that lives", CLEARING, "Clearing._abort_job",
        (("seen.record.state is State.RUNNING and age < self._survey.dead_after", "False"),),
        "I6: a job that said since that it lives is aborted",
    ),
    Hand(
        "a decided job is aborted", CLEARING, "Clearing._abort_job",
        (("seen.record.state not in UNDECIDED_OR_UNDONE", "False"),),
        "I2: a job that committed meanwhile loses its uploads, or is told aborted",
    ),
    Hand(
        "a job in part", CLEARING, "Clearing._drop_partial",
        (("whole and len(job.chosen) == job.seen", "whole"),),
        "I2: a job is aborted though the filters leave out some of its uploads",
    ),
    Hand(
        "a listing is enough", CLEARING, "Clearing.__init__",
        (("UploadRemover(survey.runtime)",
          "UploadRemover(survey.runtime, look_first=False)"),),
        "I2: a completed upload is aborted, which costs the object on some stores",
    ),
    Hand(
        "the age of the first listing is enough", CLEARING, "Clearing._clearing",
        (("limit and (age is None or age < limit)", "False"),),
        "an upload whose last part has just come is aborted",
    ),
    Hand(
        "what no listing shows is aborted", CLEARING, "Clearing._clearing",
        (("return (yield from self._not_listed(found, by, aborted))",
          "return _cleared(found, (yield from self._remover.removing(_name_of(found))))"),),
        "an upload of which nobody can tell how old it is by now is aborted",
    ),
    Hand(
        "an abort that was asked again is another's", CLEARING, "Clearing._not_listed",
        (("aborted and look.state is not UploadState.VISIBLE", "False"),),
        "an upload that we have aborted is told to have ended by itself",
    ),
    Hand(
        "any upload of the key is the one", "stores/base.py", "found_on",
        (("(one.key, one.upload_id) == named", "one.key == ask.key"),),
        "an upload that began since under the same key tells the age of one that has ended",
    ),
    Hand(
        "foreign uploads go", UPLOADS, "_by_class",
        (("not rules.foreign", "False"),),
        "I6: what nobody has claimed is aborted without the operator's word",
    ),
    Hand(
        "near a live job", UPLOADS, "_by_class",
        (("found.near", "False"),),
        "I6: an upload that may be a live job's is aborted as foreign",
    ),
    Hand(
        "unknown age is old", UPLOADS, "deed",
        (("if age is None:\n    return 'leave', 'leave it: its age is not known'",
          "if age is None:\n    return does, why"),),
        "an upload that began a second ago is aborted",
    ),
)  # fmt: skip

HAND_MADE = (
    *_THE_RECORD, *_THE_MARKER, *_THE_FENCE, *_ATTEMPTS, *_DECIDING, *_AT_ONCE, *_EXECUTING,
    *_CHECKING,
    *_ONE_QUESTION, *_SWEEPING, *_RECOVERING,
    *FACES, *FILES, *LOCAL_FILES, *MANIFEST, *RULES, *RUNNING, *SPARK, *STAGING,
    *STREAMS, *TREES,
)  # fmt: skip
"""All of them."""
