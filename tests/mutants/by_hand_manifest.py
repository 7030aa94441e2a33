"""Mutants written by hand: the rules of jobs whose tasks' files wait at the destination."""

from __future__ import annotations

from tests.mutants.handwork import Hand

ATTEMPT, CLASSIC = "committers/manifest/attempt.py", "committers/classic.py"
STORE, READY = "stores/tree.py", "commit/ready.py"
SWEEP, EARLY, DRIVER = "commit/sweep.py", "commit/early.py", "commit/job_commit.py"
CLEANUP, MANIFESTS = "maintenance/cleanup.py", "hadoop/manifests.py"

MANIFEST = (
    Hand(
        "manifest: an accepted attempt undoes itself",
        "committers/magic/abort.py",
        "settle_undo",
        (("not may()", "False"),),
        "I2: the files of an accepted attempt are removed",
        times=2,
    ),
    Hand(
        "manifest: a missing file is no problem",
        ATTEMPT,
        "TreeAttempt._gather",
        (("raise self._is_gone(gone[0])", "pass"),),
        "I9: a task commits without a file that it has written",
    ),
    Hand(
        "manifest: a manifest over another",
        ATTEMPT,
        "TreeAttempt._put",
        (
            (
                "answer.stored is None or names(answer.stored.pendings) != ours",
                "answer.stored is None",
            ),
        ),
        "I2: an attempt is told committed by a manifest that names other files",
    ),
    Hand(
        "manifest: a file of another size",
        STORE,
        "TreeStore.complete_upload",
        (("parts[0].size != found.size", "False"),),
        "what Hadoop's task has not committed is published",
    ),
    Hand(
        "manifest: any mount",
        STORE,
        "TreeStore._check_home",
        (("self._tree.mount_of(at) != self._mount", "False"),),
        "a job is decided whose files cannot be renamed to another file system",
    ),
    Hand(
        "manifest: files may not last",
        ATTEMPT,
        "TreeAttempt._commit",
        (("self._make_last()", "pass"),),
        "a power cut after the decision takes files that the job has told as published",
    ),
    Hand(
        "manifest: only the last directory of a file lasts",
        ATTEMPT,
        "TreeAttempt._make_last",
        (("add_parents(directories, path)", "directories.add(parent_of(path))"),),
        "a power cut after the decision takes the directory of an attempt",
    ),
    Hand(
        "manifest: a late attempt is told committed",
        ATTEMPT,
        "TreeAttempt._commit",
        (("late is not None", "False"),),
        "a task is told that it has committed into a job that was aborted",
    ),
    Hand(
        "manifest: a late attempt begins",
        ATTEMPT,
        "TreeAttempt._make_directories",
        (("self._fence.check()", "pass"),),
        "a task of a job that has ended writes its files all the same",
    ),
    Hand(
        "manifest: tasks write below a link",
        ATTEMPT,
        "TreeAttempt._make_directories",
        (("self._again(lambda: self._store.refuse(f'{self._root}/x'))", "pass"),),
        "files of a task lie outside of the destination",
    ),
    Hand(
        "manifest: hidden files are published",
        ATTEMPT,
        "TreeAttempt._add_found",
        (("is_hidden(name)", "False"),),
        "a program's own files are in the table",
    ),
    Hand(
        "manifest: a changed file is the task's",
        STORE,
        "TreeStore._waiting_file",
        (("etag and seen.etag != etag", "False"),),
        "what is published is not what the task committed",
    ),
    Hand(
        "manifest: files of a link are published",
        STORE,
        "TreeStore._waiting_file",
        (("self._has_link(path)", "False"),),
        "a forged directory of a task moves files from elsewhere into the table",
    ),
    Hand(
        "manifest: a sweep follows a link",
        STORE,
        "TreeStore.clear",
        (("self._has_link(f'{directory}x')", "False"),),
        "whoever ends a job deletes files outside of the destination",
    ),
    Hand(
        "manifest: any directory is cleared",
        STORE,
        "TreeStore.clear",
        (("not _IN_JOB.match(directory)", "False"),),
        "a sweep of a forged path deletes data",
    ),
    Hand(
        "manifest: what is in the way is met after the decision",
        STORE,
        "TreeStore.not_held",
        (("self._check_home(key)", "None"),),
        "a job is decided that can never be finished: a directory has the name of its file",
        times=2,
    ),
    Hand(
        "manifest: a file and a directory of one name",
        STORE,
        "TreeStore.not_held",
        (("key in above", "False"),),
        "a job is decided that can never be finished: one of its files needs another as directory",
    ),
    Hand(
        "manifest: files of other jobs",
        READY,
        "RowCheck._waits_here",
        (("path.startswith(self._waits)", "True"),),
        "a forged manifest publishes the files of another job",
    ),
    Hand(
        "manifest: any source",
        MANIFESTS,
        "_file",
        (("written != prefix + name", "False"),),
        "a forged manifest moves any file of the destination",
    ),
    Hand(
        "manifest: names are not checked",
        MANIFESTS,
        "check_file_name",
        (("name.partition('/')[0] == TEMPORARY", "False"),),
        "a file is published into the directory that the job's end deletes",
    ),
    Hand(
        "manifest: a swept job keeps its files",
        SWEEP,
        "sweep",
        (
            ("swept.aborted += run.clear(job.paths.task_attempts)", "pass"),
            ("run.clear(job.paths.tree)", "pass"),
        ),
        "the files of a job that was aborted stay for ever",
    ),
    Hand(
        "manifest: litter of jobs that live",
        CLEANUP,
        "Cleaning._waiting_litter",
        (("uuid is None or places.is_over(here, uuid) is not True", "uuid is None"),),
        "a cleanup deletes the files of a job that runs",
    ),
    Hand(
        "manifest: records, then directories",
        CLEANUP,
        "Cleaning._waiting_litter",
        (("Places(self._runtime, self._in_flight)", "self._places"),),
        "a cleanup deletes the files of a job that has begun meanwhile",
    ),
    Hand(
        "classic: nobody is told that files stay",
        EARLY,
        "has_begun",
        (("return True", "return False"),),
        "an aborted job of v1 or v2 is told as one that left nothing",
    ),
    Hand(
        "classic: v1 decides first",
        DRIVER,
        "JobCommit._commit_running",
        (("self._publish_early(offer.publication)", "pass"),),
        "v1 is manifest: what it does not promise cannot be compared",
    ),
    Hand(
        "classic: v2's mark comes late",
        CLASSIC,
        "V2Attempt._before_set",
        (("self._again(partial(early.begin, self._runtime, self.job))", "pass"),),
        "files of a job of v2 stay, and its abort does not say so",
    ),
    Hand(
        "classic: an abort looks too early",
        SWEEP,
        "sweep",
        (("undone", "False"),),
        "a task of v2 publishes after the abort has looked, and nobody is told",
    ),
    Hand(
        "classic: v2's lost rename is a failure",
        CLASSIC,
        "V2Attempt._publish",
        (("not self._is_there(file)", "True"),),
        "a task whose answer was lost fails, and its files are visible",
    ),
    Hand(
        "classic: a look that fails is a refusal",
        EARLY,
        "stays",
        (("except StoreError as error:", "except MemoryError as error:"),),
        "an abort that took effect is told as an error that says it did nothing",
    ),
    Hand(
        "classic: batches are taken",
        "committers/base.py",
        "Committer.setup",
        (("checkpoint and not cls.batches", "False"),),
        "a batch of a streaming query is published twice",
    ),
)
