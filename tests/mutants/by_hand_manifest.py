"""Mutants written by hand: the rules of jobs of renames."""

from __future__ import annotations

from tests.mutants.handwork import Hand

HOME = "committers/manifest/"
RECORDS, ATTEMPT, GATHER = f"{HOME}records.py", f"{HOME}attempt.py", f"{HOME}gather.py"
PLAN, PUBLISH, UNDO = f"{HOME}plan.py", f"{HOME}publish.py", f"{HOME}undo.py"
SETUP, EXISTING, COMMIT = f"{HOME}setup.py", f"{HOME}existing.py", f"{HOME}job_commit.py"
OPERATOR = "maintenance/trees.py"

_RECORDS = (
    Hand(
        "manifest: a lost answer is a lost swap", RECORDS, "swap",
        (("there is not None and there.nonce == record.nonce", "False"),),
        "a driver whose create was answered late takes its own decision for another's",
    ),
    Hand(
        "manifest: a record of another job", RECORDS, "_check_is_at_home",
        (("record.uuid != paths.uuid", "False"),),
        "I6: a forged record ends another job",
    ),
    Hand(
        "manifest: any plan", RECORDS, "_check_is_at_home",
        (("plan and not _PLAN.fullmatch(plan.removeprefix(f'{paths.directory}/'))", "False"),),
        "I6: a forged record names a plan that lies anywhere",
    ),
    Hand(
        "manifest: an id is taken twice", RECORDS, "claim",
        (("if _claimed(parts, record.id) == record.uuid:\n    return", "return"),),
        "I5: two jobs have one given id",
    ),
    Hand(
        "manifest: its own claim is another's", RECORDS, "claim",
        (("_claimed(parts, record.id) == record.uuid", "False"),),
        "a start whose claim lost its answer fails, and takes the id with it",
    ),
    Hand(
        "manifest: a directory without a record is nobody's", RECORDS, "take_unrecorded",
        (("parts.tree.create(paths.record(1), record.encode())", "pass"),),
        "I5: the record of a job that is being started goes",
    ),
    Hand(
        "manifest: a forgotten job is decided", RECORDS, "_is_forgotten",
        (("parts.again(lambda: parts.tree.stat(paths.record(1))) is None", "False"),),
        "I10: a driver that slept is told aborted of a job that has committed",
    ),
    Hand(
        "manifest: a record is taken with its directory", RECORDS, "take_unrecorded",
        (("there is None or there.nonce == record.nonce", "True"),),
        "I5: a job that has just written its record loses it",
    ),
)  # fmt: skip

_BEFORE = (
    Hand(
        "manifest: an accepted attempt undoes itself", ATTEMPT, "TreeAttempt._abort",
        (("seen is not None and seen.record.state in HANDS_OFF", "False"),),
        "I2: the files of an accepted attempt are removed",
    ),
    Hand(
        "manifest: an open file is a file", ATTEMPT, "TreeAttempt._gather",
        (("[n for n, f in self._opened.items() if f.state is FileState.OPEN]", "[]"),),
        "I9: a task commits without the file that it is writing",
    ),
    Hand(
        "manifest: a failed file is left out", ATTEMPT, "TreeAttempt._gather",
        (("[n for n, f in self._opened.items() if f.state is FileState.FAILED]", "[]"),),
        "I9: a task commits without the file that failed",
    ),
    Hand(
        "manifest: a task's file is what is there", GATHER, "check_files",
        (("(entry.size, entry.etag) != (file.size, file.etag)", "False"),),
        "I2: a file is published that its task has not committed",
    ),
    Hand(
        "manifest: a missing file is no problem", GATHER, "check_files",
        (("return f'{source} is gone'", "return ''"),),
        "a job is decided that cannot be published",
    ),
    Hand(
        "manifest: two files of one name", GATHER, "Gathered.add",
        (("not self.names.add(file.name)", "self.names.add(file.name) is None"),),
        "I2: one task's file is published over another's",
    ),
    Hand(
        "manifest: a file where a directory is needed", GATHER, "gather",
        (("directory in found.names", "False"),),
        "a job is decided that cannot be published",
    ),
    Hand(
        "manifest: any manifest of the name", GATHER, "_read",
        (("told is not None and sha256(data).hexdigest() != told.etag", "False"),),
        "I2: a manifest is accepted that its task has not saved",
    ),
    Hand(
        "manifest: data that came later is not seen", GATHER, "write_plan",
        (("refuse_data(parts, job, partitions)", "pass"),),
        "I6: a job of mode fail is decided beside data",
    ),
    Hand(
        "manifest: a half published job is replaced", EXISTING, "to_be_replaced",
        (("busy is None and first == again", "True"),),
        "I2: half of what another job publishes is deleted",
    ),
    Hand(
        "manifest: hidden files are data", EXISTING, "data",
        (("is_hidden_name(entry.name)", "False"),),
        "I6: a job that replaces deletes what readers skip",
    ),
    Hand(
        "manifest: no rivals", SETUP, "_look_around",
        (("refuse_rivals(parts, job, own)", "pass"),),
        "I6: two jobs that replace run at once",
    ),
    Hand(
        "manifest: data at the start is not seen", SETUP, "_look_around",
        (("refuse_data(parts, job, None)", "pass"),),
        "a job of mode fail works for hours, and is refused then",
    ),
    Hand(
        "manifest: a refused start stays", SETUP, "setup_job",
        (("_take_back(parts, job, error)", "pass"),),
        "I5: a job that was never started excludes others",
    ),
    Hand(
        "manifest: another plan than the decided one", PLAN, "load_plan",
        (("found.hexdigest() != ref.etag or totals is None", "totals is None"),),
        "I2: what somebody wrote over a plan is published",
    ),
    Hand(
        "manifest: a full disk is a bare error", PLAN, "PlanWriter._telling",
        (("telling('write', self._tree.url, self.path)", "nullcontext()"),),
        "a caller of commit gets an OSError without a hint",
        imports="from contextlib import nullcontext",
    ),
)  # fmt: skip

_DECIDED = (
    Hand(
        "manifest: a loser goes by its own plan", COMMIT, "TreeJobCommit._commit_running",
        (("now is None or now.record.state is not State.COMMITTING", "now is None"),
         ("now.record.plan != plan.ref", "False")),
        "I2: what was not decided is published",
    ),
    Hand(
        "manifest: a job that was decided meanwhile is nobody's", RECORDS, "take_unrecorded",
        (("_version(parts, paths, 1) is None", "True"),),
        "I2: a paused cleanup deletes the files of a decided job",
    ),
    Hand(
        "manifest: a look that fails after a swap is a refusal", RECORDS, "_is_forgotten",
        (("raise _unread(parts, job_id, error) from error", "raise"),),
        "I10: nothing was decided, says the call that has decided",
    ),
    Hand(
        "manifest: an older version that cannot be read is a refusal", RECORDS, "_reread",
        (("raise _unread(parts, now.record.id, error) from error", "raise"),),
        "I10: nothing was decided, says the call that has decided",
    ),
    Hand(
        "manifest: what our own rename took is somebody's", PUBLISH, "take_away",
        (("moved = False", "return False"),),
        "I8: the marker of a later job is lost, though its rename was only told as failed",
    ),
    Hand(
        "manifest: the marker cannot be read, so nothing is decided", COMMIT,
        "TreeJobCommit._without_record",
        (("except StoreError as error:", "except MemoryError as error:"),),
        "I10: nothing was decided, says the call that has decided",
    ),
    Hand(
        "manifest: a revert that cannot look again is a refusal", COMMIT, "TreeJobCommit._undo",
        (("with suppress(StoreError):\n    now = self._read()", "now = self._read()"),),
        "I10: nothing was done, says the call that has begun to revert",
    ),
    Hand(
        "manifest: what was last read is told as what is", COMMIT, "TreeJobCommit._moved_on",
        (("as_last_read(self._incomplete(seen, what, error), unread_again)",
          "self._incomplete(seen, what, error)"),),
        "I10: a job is told as committed that another process has undone",
    ),
    Hand(
        "manifest: undecided before the first look", COMMIT, "TreeJobCommit.commit",
        (("interrupted(unread(self.job))", "interrupted(self._undecided())"),),
        "I10: Ctrl-C says that nothing is visible of a job that is committed",
    ),
    Hand(
        "manifest: a refusal that is interrupted says undecided", COMMIT, "TreeJobCommit._refused",
        (("interrupted(half_aborted(self.job))", "interrupted(self._undecided())"),),
        "I10: Ctrl-C says that the job was not decided, and it is aborted",
    ),
    Hand(
        "manifest: a revert of mode fail is told as a commit", COMMIT,
        "TreeJobCommit._revert_after",
        (("interrupted(half_aborted(self.job))", "interrupted(committed(self.job))"),),
        "I10: Ctrl-C says never to abort a job that is being undone",
    ),
    Hand(
        "manifest: a completed job is told as one that can be undone", COMMIT,
        "TreeJobCommit._incomplete",
        (("told.state = str(seen.record.state)", "pass"),),
        "somebody tries to revert a job that is completed",
    ),
    Hand(
        "manifest: an abort undoes what is decided", COMMIT, "TreeJobCommit.abort",
        (("seen.record.state is State.COMMITTING and revert",
          "seen.record.state is State.COMMITTING"),),
        "I10: a job that is being committed is undone by a plain abort",
    ),
    Hand(
        "manifest: what looked wrong was another's work", COMMIT, "TreeJobCommit._refused",
        (("now is None or now.version != seen.version", "False"),),
        "a driver that lost says that the job was refused",
    ),
    Hand(
        "manifest: completed with files missing", COMMIT, "TreeJobCommit._after_renames",
        (("not (renamed.failed or renamed.unresolved or renamed.conflict)", "True"),),
        "I2: a job is told committed of which files are missing",
    ),
    Hand(
        "manifest: a given id is forgotten", COMMIT, "TreeJobCommit._end",
        (("may_remove and self.job.undisturbed and not self.job.given_id",
          "may_remove and self.job.undisturbed"),),
        "I10: nobody can tell what became of a job of that id",
    ),
    Hand(
        "manifest: mode fail writes over others", COMMIT, "TreeJobCommit._publish",
        (("self.job.terms.mode not in FAILING", "True"),),
        "I6: a file of another program is overwritten",
    ),
    Hand(
        "manifest: a lost source was published", PUBLISH, "_publish",
        (("return 'unresolved'", "return 'done'"),),
        "I2: a file that is nowhere counts as published",
    ),
    Hand(
        "manifest: what was taken is deleted", PUBLISH, "take_away",
        (("is_it(taken, file)", "True"),),
        "I6: a file is lost that another program wrote between the look and the rename",
    ),
    Hand(
        "manifest: nothing in the trash goes back", PUBLISH, "goes_back",
        (("mark == _mark(entry.size, entry.etag)", "True"),),
        "I6: a file is lost that a paused process took by mistake",
    ),
    Hand(
        "manifest: all in the trash goes back", PUBLISH, "goes_back",
        (("mark == _mark(entry.size, entry.etag)", "False"),),
        "I3: what a job has undone is visible again",
    ),
    Hand(
        "manifest: it goes back over a newer one", PUBLISH, "put_back",
        (("tree.rename(aside, name, replace=False)", "tree.rename(aside, name)"),),
        "I6: the newest file of another program is overwritten by an older one",
    ),
    Hand(
        "manifest: it goes back where its directory is", PUBLISH, "put_back",
        (("parts.again(lambda: make_directories(tree, parent_of(name)))", "pass"),),
        "I6: a file that was the last of its directory stays away",
    ),
    Hand(
        "manifest: an older job marks over a newer one", PUBLISH, "write_marker",
        (("marker is not None and not may_replace_marker(marker, named, completed)", "False"),),
        "I8: the marker says that an older job was the last",
    ),
    Hand(
        "manifest: a marker over another's", PUBLISH, "write_marker",
        (("parts.tree.rename(spare, SUCCESS, replace=False)",
          "parts.tree.rename(spare, SUCCESS)"),),
        "I8: a paused job marks over one that completed later",
    ),
    Hand(
        "manifest: an undo leaves the sources", UNDO, "_undo",
        (("move(parts, paths, file.source(paths), aside_of(waiting, file))", "pass"),),
        "I3: a paused driver publishes a job that was undone",
    ),
    Hand(
        "manifest: an undo is done half", UNDO, "undo_all",
        (("failure = failure or error", "pass"),),
        "I3: a job is told reverted of which files are visible",
    ),
    Hand(
        "manifest: a young job is dead", OPERATOR, "_refuse_young",
        (("age < dead_after", "False"),),
        "a job that runs is aborted under its driver",
    ),
    Hand(
        "manifest: the record that takes a directory goes first", OPERATOR, "TreeCleaning._take",
        (("taken and self._parts.tree.promises.directories", "taken"),),
        "I2: where directories are not real, a cleanup deletes a job that starts meanwhile",
    ),
    Hand(
        "manifest: a given id goes with its record", OPERATOR, "TreeCleaning._job",
        (("limits.forget_given_after if record.given_id else limits.forget_after",
          "limits.forget_after"),),
        "I5: an id is used again though nobody said so",
    ),
)  # fmt: skip

MANIFEST = (*_RECORDS, *_BEFORE, *_DECIDED)
