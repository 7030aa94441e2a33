"""More mutants written by hand: one for each rule that was added when a schedule had been found
that broke a promise. What each rule prevents is said beside it."""

from __future__ import annotations

from tests.mutants.by_hand_world import WORLD
from tests.mutants.handwork import Hand

RECORDS, PREPARE, COMPLETE = "commit/records.py", "commit/prepare.py", "commit/complete.py"
CONFLICT, DELETES, CLOSED = "commit/conflict.py", "commit/revert.py", "commit/closed.py"
CHECK, LOAD, PLAN = "commit/check.py", "commit/load.py", "protocol/plan.py"
MAGIC = "committers/magic"
ATTEMPT, SET, TASK_UNDO = f"{MAGIC}/attempt.py", "commit/pendingset.py", f"{MAGIC}/abort.py"
STATE, LONG, BASE = "commit/upload_state.py", "commit/probe.py", "stores/base.py"
FORCE, GIVING = "maintenance/giving_up.py", "maintenance/giving_up.py"
JOB_COMMIT, PUBLISH = "commit/job_commit.py", "commit/publish.py"

_MAKE_PLAN = (
    "plan = make_plan(self.runtime, self.job, self.in_flight, accepted, checked, spool, partitions)"
)
_LOOK_AT_PLANS = "refuse_overlapping_plans(self.runtime, self.job, self.dest, partitions)"

_BESIDE_EACH_OTHER = (
    Hand(
        "list, then look", JOB_COMMIT, "JobCommit._store_plan",
        ((_MAKE_PLAN, f"if partitions is None:\n    {_MAKE_PLAN}"),
         (_LOOK_AT_PLANS, f"{_MAKE_PLAN}\n{_LOOK_AT_PLANS}")),
        "I6: a job by partition ends between the listing and the look: both sets of files stay",
    ),
    Hand(
        "no announcement", JOB_COMMIT, "JobCommit._store_plan",
        (("announced = self._announce(partitions)", "pass"),),
        "I6: two jobs of one partition look at each other's plans before either has stored one",
    ),
    Hand(
        "the announcement stays after a refusal", JOB_COMMIT, "JobCommit._store_plan",
        (("with cleaning_up(error):\n    drop_plan(self.runtime, self.job, announced)\n"
          "if isinstance(error, ConflictingJob | DestinationExists):\n"
          "    return self._refuse(seen, error)\nraise",
          "if isinstance(error, ConflictingJob | DestinationExists):\n"
          "    return self._refuse(seen, error)\nraise"),),
        "I4: an aborter swept before it was stored: a plan of a job that is gone stays",
    ),
    Hand(
        "the announcement stays after a lost swap", JOB_COMMIT, "JobCommit._swap_to_committing",
        (("drop_plan(self.runtime, self.job, offer.announced)", "pass"),),
        "I4: the winner swept before it was stored: a plan of a job that is gone stays",
    ),
    Hand(
        "one listing of the old data", CONFLICT, "replaced",
        (("_anything_new(runtime, dest, partitions, in_flight, there, below, passed_over)",
          "False"),),
        "I2: of an append that ends while a replace lists, a part is deleted",
    ),
    Hand(
        "a key is enough for the second listing", CONFLICT, "_anything_new",
        (("known is not None and known.is_same(info.etag, info.last_modified)",
          "known is not None"),),
        "I2: an append that rewrites one key and adds another is deleted by half",
    ),
    Hand(
        "all decided jobs are spared", CONFLICT, "_of_decided_jobs",
        (("record.terms.mode in EXCLUDING", "False"),),
        "I6: the late plan of a job by partition spares the partition that a later one replaces",
    ),
    Hand(
        "a set that is gone is its job's end", CONFLICT, "_until_swept",
        (("runtime.store.head(other.record.plan.key)", "return"),),
        "I2: a late attempt takes its pendingset, the job is not over: its files are deleted",
    ),
    Hand(
        "who misses a set does not wait", CONFLICT, "_until_swept",
        (("_looks(runtime)", "range(1)"),),
        "I2: a job that is swept just then is taken for one that never ends",
    ),
    Hand(
        "a key is enough to be spared", CONFLICT, "_is_visible",
        (("became(upload, runtime.store.head(upload.key))", "True"),),
        "I7: old data stays that an append is about to rewrite",
    ),
    Hand(
        "jobs below are not looked at", CONFLICT, "_of_decided_jobs",
        (("chain(here, _live_below(runtime, dest, jobs_below, in_flight))", "here"),),
        "I2: half of an append below is deleted while it is published",
    ),
    Hand(
        "a job below that the second listing shows is not new", CONFLICT, "_anything_new",
        (("not jobs <= jobs_below", "False"),),
        "I2: half of an append below is deleted that began while the data was listed",
    ),
    Hand(
        "a replace below is passed over", CONFLICT, "_of_decided_jobs",
        (("home != dest", "False"),),
        "I2: the files of a decided replace below are deleted while it is published",
    ),
    Hand(
        "a handle's terms are believed", PREPARE, "refuse_other_terms",
        (("not differ", "True"),),
        "I5: an edited handle decides a plan that nobody can finish or take back",
    ),
    Hand(
        "a result without an ETag is any version", PREPARE, "wanted_results",
        (("result.key and (not result.etag)", "False"),),
        "I9: another version of a set than the task wrote is published",
    ),
    Hand(
        "a listing may hold more tasks than expected", CHECK, "expected",
        (("sorted(set(tasks) - wanted)", "[]"),),
        "I9: a stray task's files are published beside the expected ones",
    ),
    Hand(
        "results left out are told nowhere", "commit/sweep.py", "_Sweep.unpublished",
        (("_left_out(left_out)", "[]"),),
        "half a table is committed, and nobody is told",
    ),
    Hand(
        "a claim before the right to take it away", GIVING, "GivingUp.claim",
        (("self.runtime.store.delete_one(f'{self.key}-{self.runtime.ids()}')", "pass"),),
        "I5: a record is overwritten that stays unreadable for everybody",
    ),
    Hand(
        "two listings at most", CONFLICT, "", (("LISTINGS_MAX = 5", "LISTINGS_MAX = 2"),),
        "I2: two appends end, one in each listing: a part of the second is deleted",
    ),
)  # fmt: skip

_UNDOING_ATTEMPTS = (
    Hand(
        "a look in place of a claim", TASK_UNDO, "settle",
        (("attempt_set.read() if reading else attempt_set.claim()", "attempt_set.read()"),),
        "I2: another handle commits between the look and the aborts: the job stays unresolved",
    ),
    Hand(
        "a claim in an ended job stays", TASK_UNDO, "_claim_stands",
        (("attempt_set.take_back()", "pass"),),
        "I4: a tombstone that lands after the sweep stays",
    ),
    Hand(
        "a tombstone is a problem", LOAD, "_parse",
        (("if listed:\n    raise _PassedOverError", "pass"),),
        "a job with an aborted attempt is refused",
    ),
    Hand(
        "a tombstone is a set", LOAD, "_parse",
        (("is_tombstone(either.extra_data)", "False"),),
        "I2: an aborted attempt counts as a task without files",
    ),
    Hand(
        "a claimed key is a set", SET, "AttemptSet.read",
        (("ready.is_tombstone(pendingset.extra_data)", "False"),),
        "I2: a task is told committed whose attempt was aborted",
    ),
    Hand(
        "a late task does not look", ATTEMPT, "Attempt._abort", (("not unaccepted", "False"),),
        "I2: a late task aborts what was completed, which costs the object on some stores",
    ),
    Hand(
        "a late twin is not looked at", TASK_UNDO, "RetriedCreates.abort_if_late",
        (("UploadRemover(self._runtime)", "UploadRemover(self._runtime, look_first=False)"),),
        "I2: the listing is stale: what was completed is aborted",
    ),
    Hand(
        "a file that fails does not look", "committers/magic/saved.py", "SavedFiles.abort",
        (("UploadRemover(self._runtime)", "UploadRemover(self._runtime, look_first=False)"),),
        "I2: another handle has committed the file: what was completed is aborted",
    ),
    Hand(
        "the fence before the set", "committers/magic/saved.py", "SavedFiles.late",
        (("self._set_without(pending)", "self._fence.must_undo() or self._set_without(pending)"),
         ("return self._fence.must_undo()", "return None")),
        "I2: the job ends between the two looks: neither finds anything, and the file is lost",
    ),
    Hand(
        "any process", "committers/ends.py", "TaskAttempt.check_process",
        (("self._pid != os.getpid()", "False"),),
        "I2: a forked child reports success for files that nobody publishes",
    ),
)  # fmt: skip

_THE_DECISION = (
    Hand(
        "only the last sending may land", RECORDS, "may_still_land",
        (("isinstance(error, Unanswered) or error.attempts > 1", "isinstance(error, Unanswered)"),),
        "I10: a first sending that was not answered lands after 'nothing was decided'",
    ),
    Hand(
        "a refusal is believed", RECORDS, "swap", (("final and not error.sent", "final"),),
        "I10: a gateway refuses what the store has done: 'nothing was decided' is told",
    ),
    Hand(
        "a refused swap may be unknown", RECORDS, "_read_back",
        (("OutcomeUnknown",
          "(lambda *_, **__: why) if why.status == error.status == 403 else OutcomeUnknown"),),
        "I10: the first try lands, the second is forbidden, as is the read: 'refused' is told",
    ),
    Hand(
        "a doubt of one try: swap", RECORDS, "swap",
        (("doubtful = doubtful or may_still_land(error)", "doubtful = may_still_land(error)"),),
        "I10: the first try lands, the second is forbidden: 'nothing was decided' is told",
    ),
    Hand(
        "a doubt of one try: create", RECORDS, "create",
        (("doubtful = doubtful or may_still_land(error)", "doubtful = may_still_land(error)"),),
        "I10: the first try lands, the second is forbidden: 'not started' is told",
    ),
    Hand(
        "only the last sending counts unconditionally", RECORDS, "_unconditional_swap",
        (("not may_still_land(error)", "not isinstance(error, Unanswered)"),),
        "I10: conditional_writes='off': 'nothing was decided' is told, and the first sending lands",
    ),
    Hand(
        "a store's error after the decision", JOB_COMMIT, "JobCommit._without_record",
        (("except StoreError:", "except ZeroDivisionError:"),),
        "I10: a decided job ends in an error that says that nothing was decided",
    ),
    Hand(
        "a failed swap is told as what is", JOB_COMMIT, "JobCommit._swap_to_completed",
        (("return records.Swapped(False, self._moved_on(seen, failure))", "raise failure"),),
        "I10: a job is told as committed that another process has undone",
    ),
    Hand(
        "no task is a job too", CHECK, "expected", (("if tasks:\n    return", "return"),),
        "I2: a generator that is used up publishes nothing, and empties the table",
    ),
    Hand(
        "results without a key", PREPARE, "wanted_results",
        (("not result.key and (result.files or result.bytes)", "False"),),
        "I2: the files of a result whose key is empty are dropped",
    ),
)  # fmt: skip

_EXECUTING = (
    Hand(
        "a conflict without a condition", COMPLETE, "conflicts",
        (("if_none_match and isinstance(error, PreconditionFailed | WriteConflict)",
          "isinstance(error, PreconditionFailed | WriteConflict)"),),
        "I7: an append is undone, and with it what it had overwritten",
    ),
    Hand(
        "a conflict with nothing", COMPLETE, "_settle",
        (("conflict and look.there is not None", "conflict"),),
        "I5: one 409 reverts a committed job, with nothing at the key",
    ),
    Hand(
        "a marker cannot be accepted", PUBLISH, "Publication.mark",
        (("self.dest.success_key in self.accept", "False"),),
        "a job whose _SUCCESS may not be written stays incomplete for ever",
    ),
    Hand(
        "the ETag alone", "protocol/record.py", "ObjectRef.is_same",
        (("not self.modified or same_time(self.modified, modified)", "True"),),
        "I8: an empty _SUCCESS of a job that ran days later is deleted: all have one ETag",
    ),
    Hand(
        "two deletes at most", DELETES, "", (("DELETE_TRIES_MAX = 4", "DELETE_TRIES_MAX = 2"),),
        "a store that answers 409 twice leaves a committed job incomplete",
    ),
    Hand(
        "closed records: round and round", CLOSED, "_others",
        (("if found >= directory:\n    return", "pass"),),
        "a job reads, and deletes, each closed record twice; and its own",
    ),
)  # fmt: skip

_FORGED = (
    Hand(
        "any plan", "commit/load.py", "load_plan", (("check_plan(plan, job, ref.key)", "pass"),),
        "I6: whoever may write below one destination has an operator delete elsewhere",
    ),
    Hand(
        "a plan of another job", PLAN, "check_plan", (("told != true", "False"),),
        "I6: the plan of another job is executed",
    ),
    Hand(
        "a plan of any sets", PLAN, "check_plan",
        (("not _is_set_of(f'{paths.tree}{planned.name}', planned.attempt, job)", "False"),),
        "I6: pendingsets outside the job's directory are executed",
    ),
    Hand(
        "a plan names a set twice", PLAN, "check_plan",
        (("not names.add(planned.name)", "False"),),
        "a forged plan has one set read and completed a million times",
    ),
    Hand(
        "any number of rows", "protocol/rows.py", "find_rows",
        (("len(starts) == rows_max", "False"),),
        "a hostile plan is read to its end",
    ),
    Hand(
        "sets of any size side by side", LOAD, "_reading",
        (("_room_for(ref)", "PENDINGSET_BYTES_MAX"),),
        "64 hostile pendingsets are read at once",
    ),
    Hand(
        "a plan of any mode deletes", PLAN, "check_plan",
        (("plan.deletes and mode not in REPLACING", "False"),),
        "I6: the forged plan of an append deletes data",
    ),
    Hand(
        "a plan deletes anywhere", PLAN, "check_plan",
        (("not dest.contains(ref.key) or is_hidden(relative := dest.relative(ref.key))",
          "is_hidden(relative := ref.key[len(dest.prefix):])"),),
        "I6: a forged plan deletes outside the destination",
    ),
    Hand(
        "a plan deletes what is hidden", PLAN, "check_plan",
        (("not dest.contains(ref.key) or is_hidden(relative := dest.relative(ref.key))",
          "not dest.contains(ref.key) or not (relative := dest.relative(ref.key))"),),
        "I6: a forged plan deletes another job's record",
    ),
    Hand(
        "a plan deletes in any partition", PLAN, "check_plan",
        (("mode in BY_PARTITION and directory + slash not in partitions", "False"),),
        "I6: a forged plan deletes partitions that it does not announce",
    ),
    Hand(
        "a plan of any marker", PLAN, "check_plan",
        (("plan.marker is not None and (mode, plan.marker.key) != ('replace', dest.success_key)",
          "False"),),
        "I6: a forged plan deletes any object as its marker",
    ),
    Hand(
        "a record of another place", RECORDS, "_check_is_at_home",
        (("(element, name) != (f'{MAGIC_JOB_PREFIX}{record.id}', RECORD)", "False"),),
        "I6: the record of another job is executed here",
    ),
    Hand(
        "a record of any UUID", RECORDS, "_check_is_at_home",
        (("not _UUID.fullmatch(record.uuid) or not (record.given_id or record.uuid == record.id)",
          "not (record.given_id or record.uuid == record.id)"),),
        "I6: a record whose UUID is a part of many names takes others' uploads",
    ),
    Hand(
        "a drawn id of another UUID", RECORDS, "_check_is_at_home",
        (("not _UUID.fullmatch(record.uuid) or not (record.given_id or record.uuid == record.id)",
          "not _UUID.fullmatch(record.uuid)"),),
        "I6: a record with the UUID of a live job takes that job's uploads",
    ),
    Hand(
        "a record of any plan", RECORDS, "_check_is_at_home",
        (("plan and not _PLAN.fullmatch(plan.removeprefix(paths.directory))", "False"),),
        "I6: a record names a plan that lies elsewhere",
    ),
    Hand(
        "a record of any marker", RECORDS, "_check_is_at_home",
        (("record.marker is not None and record.marker.key != paths.dest.success_key", "False"),),
        "I6: a record names any object as the marker",
    ),
)  # fmt: skip

_A_WAY_OUT = (
    Hand(
        "one refusal is enough", COMPLETE, "_go_on",
        (("settled[0] is Completion.REFUSED", "False"),),
        "I2: a server that is being restarted says 400 once: an operator gives the file up",
    ),
    Hand(
        "two refusals of two kinds", COMPLETE, "_once_more",
        (("settled[0] is Completion.REFUSED and not same", "False"),),
        "I2: a file that the store has called wrong for two reasons is given up",
    ),
    Hand(
        "no room is final", COMPLETE, "is_final", (("error.status not in (401, 403)", "True"),),
        "I2: a file is given up because the store was full",
    ),
    Hand(
        "another region is final", COMPLETE, "is_final",
        (("error.code not in _CURABLE_CODES", "True"),),
        "I2: a file is given up because an operator named the wrong region",
    ),
    Hand(
        "a disabled key is final", COMPLETE, "is_final",
        (("not error.code.startswith(_CURABLE_PREFIX)", "True"),),
        "I2: a file is given up because its KMS key was disabled for an hour",
    ),
    Hand(
        "a second sending's refusal is final", COMPLETE, "is_final",
        (("not may_still_land(error)", "True"),),
        "I2: a file is given up that an unanswered Complete is just publishing",
    ),
    Hand(
        "what cannot be told is refused", COMPLETE, "_settle",
        (("look.state is UploadState.OPEN and is_final(error)", "is_final(error)"),),
        "I2: a file is given up of which nobody can tell whether it is visible",
    ),
    Hand(
        "the checksum of no bytes", COMPLETE, "as_request",
        (("upload.checksum if upload.length else None", "upload.checksum"),),
        "MinIO: a job with an empty file never ends",
    ),
    Hand(
        "lost checksums stay lost", COMPLETE, "same_parts",
        (("ours.checksum or theirs.checksum", "ours.checksum"),),
        "AWS: a job of etag_form='strings' never ends",
    ),
    Hand(
        "refused is unfinished", PUBLISH, "Publication.complete_all",
        (("left[completion].append(key)",
          "left[Completion.UNFINISHED if completion is Completion.REFUSED else completion]"
          ".append(key)"),),
        "a job that the store will not complete is to be tried again for ever",
    ),
    Hand(
        "a wrong HEAD means nothing there", STATE, "_at",
        (("listed(runtime.store, key) is not None", "False"),),
        "I2: a visible object of a customer's key is called absent, and its file lost",
    ),
    Hand(
        "a longer key is the key", BASE, "listed",
        (("info.key == key", "True"),),
        "a key that the store cannot hold is taken for an object: its job is never undone",
    ),
    Hand(
        "every 403 means nothing there", BASE, "looked",
        (("shows((yield page()))", "False"),),
        "I2, I10: a record that may not be read is called gone",
    ),
    Hand(
        "a 403 is believed", BASE, "looked", (("refused.status != 403", "True"),),
        "under the least policy on AWS no first job at a destination is ever finished",
    ),
    Hand(
        "a listing that is refused shows nothing", BASE, "looked",
        (("raise refused from error", "there = False"),),
        "I2, I10: a record of which nothing may be seen is called gone",
    ),
    Hand(
        "what is not shown is deleted", DELETES, "delete_if_same",
        (("info = found", "return runtime.store.delete_one(key) or True"),),
        "I6: a neighbour's object that answers HEAD with 400 is deleted by its name",
    ),
    Hand(
        "characters for bytes", LONG, "is_long",
        (("len(element.encode()) > ELEMENT_BYTES_MAX", "len(element) > ELEMENT_BYTES_MAX"),),
        "a file system counts bytes: a name of 128 umlauts sticks",
    ),
    Hand(
        "asked where nothing is", LONG, "_is_limited",
        (("f\"{directory if fits else ''}{_ASKED}\"", "f'{directory}none/{_ASKED}'"),),
        "a file system finds no directory and says 404: a name of 256 bytes sticks",
    ),
    Hand(
        "asked with a key that is too long for S3", LONG, "_is_limited",
        (("len(directory.encode()) + len(_ASKED) <= KEY_BYTES_MAX", "True"),),
        "a long destination on S3: names that it takes are refused",
    ),
    Hand(
        "any refusal is a limit", LONG, "_is_limited",
        (("except InvalidRequest:", "except (InvalidRequest, PermissionDenied):"),),
        "who may not read is told that the name is too long",
        imports="from magic_committer.errors import PermissionDenied",
    ),
    Hand(
        "the suffix is not counted", ATTEMPT, "Attempt.open",
        (("key if self._in_memory else pending_key", "key"),),
        "a name of 250 bytes fails when it is closed",
    ),
    Hand(
        "others' long names", CHECK, "_not_held",
        (("is_long(key) and key not in taken_as_is", "False"),),
        "a key that the store cannot hold is decided",
    ),
)  # fmt: skip

_THE_OLDEST = (
    Hand(
        "the oldest goes on", CONFLICT, "_refuse_rivals",
        (("refusal = refusal or _conflict(job, other, f'{what}{_why_still_there(other)}')",
          "pass"),),
        "I6, I2: a younger job that has looked before runs beside it: both publish",
    ),
    Hand(
        "nobody yields at once", CONFLICT, "_refuse_rivals",
        (("not _yields(other, own)", "False"),),
        "of eight jobs that start at once none wins: all wait for each other",
    ),
    Hand(
        "nobody waits", CONFLICT, "", (("YIELD_LOOKS_MAX = 6", "YIELD_LOOKS_MAX = 1"),),
        "of eight jobs that start at once none wins",
    ),
    Hand(
        "a decided job is waited for", CONFLICT, "_yields",
        (("own is None or not own.record.state is other.record.state is State.RUNNING",
          "own is None"),),
        "who cannot win is told so after eight seconds",
    ),
    Hand(
        "an ending job is not waited for", CONFLICT, "_yields",
        (("other.record.state in (State.ABORTING, State.REVERTING, State.REVERTED)", "False"),),
        "of jobs of given ids, which yield through `aborting`, none wins",
    ),
    Hand(
        "no order within a second", CONFLICT, "_seniority",
        (("(seen.last_modified, seen.record.uuid)", "(seen.last_modified, '')"),),
        "of jobs that start in one second none wins",
    ),
)  # fmt: skip

_GIVING_UP = (
    Hand(
        "a completed job loses its files", FORCE, "_readable",
        (("record.state is State.REVERTING", "True"),),
        "I7: its files go, and what they replaced is gone already",
    ),
    Hand(
        "a completed job's driver is dead", FORCE, "_readable",
        (("giving.refuse_young(f'for it is {found}: its files are visible', dead_after)", "pass"),),
        "I7: a job is given up while its driver deletes what it replaces",
    ),
    Hand(
        "any young job is given up", GIVING, "GivingUp.refuse_young",
        (("not self.dry_run", "False"),),
        "I2: a newer version's job is given up while it runs",
    ),
    Hand(
        "a claim is as good as a record", FORCE, "_unreadable",
        (("not giving.is_claimed()", "True"),),
        "a call that died cannot be done again for an hour",
    ),
    Hand(
        "claims whatever is there", GIVING, "GivingUp.claim",
        (("self.runtime.store.put(self.key, body, metadata=metadata, if_match=wanted)",
          "self.runtime.store.put(self.key, body, metadata=metadata)"),),
        "I2: a record that was mended is given up",
    ),
    Hand(
        "the UUID of another record", GIVING, "GivingUp._may_be_ours",
        (("bool(_UUID.fullmatch(uuid)) and uuid not in self.others",
          "bool(_UUID.fullmatch(uuid))"),),
        "I6: a forged record takes the uploads of the job beside it",
    ),
    Hand(
        "uploads of any token", GIVING, "GivingUp._is_ours",
        (("token in self.uuids or (not token and self.adopted)", "True"),),
        "I6: a forged set takes an upload of somebody else",
    ),
    Hand(
        "uploads anywhere", GIVING, "GivingUp._is_ours",
        (("self.dest.contains(upload.key)", "True"),),
        "I6: a forged set takes an upload outside the destination",
    ),
    Hand(
        "a conditional DELETE or none", GIVING, "GivingUp.remove_record",
        (("break", "raise"),),
        "on a store without conditional DELETE no record has a way out",
    ),
)  # fmt: skip

_STORES = (
    Hand(
        "a 200 to a second sending is believed", COMPLETE, "_go_on",
        (("distrust or number or answer.attempts > 1", "distrust"),),
        "I2: a server that was killed in the first sending answers the second with 200",
    ),
    Hand(
        "a 200 by a stored plan is believed", PUBLISH, "Publication._distrusts",
        (("isinstance(self.source, StoredSource)", "False"),),
        "I2: a server that was killed while the driver completed answers the recovery with 200",
    ),
    Hand(
        "a store that believes dead uploads is believed", PUBLISH, "Publication._distrusts",
        (("known(self.runtime.store.identity).true_complete is not True", "False"),),
        "I2: an upload is aborted after the check, and an older object at its key is the answer",
    ),
    Hand(
        "whatever is visible is the JVM's", JOB_COMMIT, "JobCommit.abort",
        (("now is not None and now.record.nonce == seen.record.nonce", "True"),),
        "I10: a job that another process has just committed is told half published",
    ),
    Hand(
        "nobody asks whether a 200 is true", JOB_COMMIT, "JobCommit._store_plan",
        (("need(self.runtime, self.paths, seen, {'true_complete'})", "pass"),),
        "I2: the process that commits has not started the job, and does not know its store",
    ),
    Hand(
        "any object will do after a 200", COMPLETE, "_is_it",
        (("became(upload, there)", "True"),),
        "I2: what an earlier job left at the key is taken for the file",
    ),
    Hand(
        "no wait after a 200", COMPLETE, "_wait_for", (("range(LOOKS_MAX)", "range(1)"),),
        "I5: a file that another executor is completing is called lost",
    ),
    Hand(
        "an upload without its parts is open", "commit/upload_state.py", "lacks_parts",
        (("look.state is UploadState.OPEN and any(p.number not in stored for p in upload.parts)",
          "False"),),
        "I5: a file that the store has lost is called unfinished for ever",
    ),
    Hand(
        "a set of nobody is passed over", JOB_COMMIT, "JobCommit._offer",
        (("if loaded.nobodys:\n    return self._unless_decided(seen,"
          " whose_they_are_is_lost(self.job, loaded.nobodys))", "pass"),),
        "I2: a task whose set has lost its metadata is left out, and nobody is told",
    ),
    Hand(
        "the body of a set is not believed", LOAD, "_hold_owner",
        (("extra.get(EXTRA_JOB)", "''"),),
        "a job whose metadata gets lost cannot be committed, though its sets say whose they are",
    ),
    Hand(
        "metadata of any kind", "commit/probe.py", "_of_record",
        (("_came_back({JOB_METADATA: seen.record.uuid}, info.metadata)", "_Finding(True)"),),
        "I2: a job starts where its files cannot be told from others'",
    ),
    Hand(
        "a single 400 is a way of the store", "commit/probe.py", "_rounds",
        (("REFUSALS_MIN", "1"),),
        "I6: one odd answer, and a process deletes by HEAD and plain DELETE from then on",
    ),
    Hand(
        "a right ETag is tried once", "commit/probe.py", "_accepted_form",
        (("(etag, records.other_quoting(etag)) * 2", "(etag, records.other_quoting(etag))"),),
        "I6: one odd 412, and a process deletes by HEAD and plain DELETE from then on",
    ),
    Hand(
        "any error is a true refusal", "commit/probe.py", "_true_complete",
        (("except NotFound:", "except (NotFound, PermissionDenied):"),),
        "I2: one 403, and a process believes every 200 of a store that lies",
        imports="from magic_committer.errors import PermissionDenied",
    ),
    Hand(
        "a file that was given up stays open", "commit/publish.py", "Publication._take_as_it_is",
        (("UploadRemover(self.runtime).remove(UploadName.of(upload))", "Removed(Removal.GONE)"),),
        "I4: an upload that the plan names is open after the job's end, for ever",
        imports="from magic_committer.commit.upload_state import Removed",
    ),
    Hand(
        "an empty listing is an all-clear", "maintenance/uploads.py", "blind_spot",
        (("hides_uploads(runtime, dest.prefix)", "''"),),
        "`uploads expect 0` is content with 1,500 open uploads",
    ),
    Hand(
        "a listing without a prefix is proof",
        "maintenance/uploads.py", "shows_more_than_keys",
        (("bool(dest.prefix) and any(one.key != dest.prefix for one in listed)",
          "any(one.key != dest.prefix for one in listed)"),),
        "`uploads expect` is content with what a server happens to remember",
    ),
)  # fmt: skip

RULES = (*_BESIDE_EACH_OTHER, *_UNDOING_ATTEMPTS, *_THE_DECISION, *_EXECUTING, *_FORGED,
         *_A_WAY_OUT, *_THE_OLDEST, *_GIVING_UP, *_STORES, *WORLD)  # fmt: skip
