"""Mutants written by hand: the rules of the classic committers."""

from __future__ import annotations

from tests.mutants.handwork import Hand

HOME = "committers/classic/"
ATTEMPT, COMMIT, NAMES = f"{HOME}attempt.py", f"{HOME}job_commit.py", f"{HOME}names.py"
DRIVER = "committers/manifest/job_commit.py"

CLASSIC = (
    Hand(
        "classic: a driver that finds nothing believes it", DRIVER,
        "TreeJobCommit._commit_running",
        (("except (JobError, StoreError):",
          "except (CommitRefused, DestinationExists, NotFound):"),),
        "a driver is told that no task is committed, because another one has committed the job",
    ),
    Hand(
        "classic: a task is not told that it is late", ATTEMPT, "V1Attempt._move",
        (("self._is_there(paths.merging) and self._is_there(target)", "False"),),
        "a task is told that it has committed, and its files are left out",
    ),
    Hand(
        "classic: hidden files are published", ATTEMPT, "V1Attempt._move",
        (("self._remove_left_out()", "pass"),),
        "a program's own temporary files appear in the table",
    ),
    Hand(
        "classic: v1's lost rename is a failure", ATTEMPT, "V1Attempt._rename",
        (("self._is_there(target) or self._is_there(self._merged)", "False"),),
        "a task whose answer was lost fails, and is committed",
    ),
    Hand(
        "classic: an older attempt stays", ATTEMPT, "V1Attempt._rename",
        (("tree.rename(target, self._old())", "return"),),
        "the files of an earlier attempt are published for those of the last one",
    ),
    Hand(
        "classic: an accepted attempt is named after its task", NAMES, "committed_name",
        (("by_results", "False"),),
        "an attempt that nobody accepted takes the place of the accepted one",
    ),
    Hand(
        "classic: the merge leaves the door open", COMMIT, "V1JobCommit._begin_merge",
        (("tree.rename(paths.app_attempt, paths.merging)",
          "make_directories(tree, paths.merging, below=paths.job_attempt)"),),
        "nothing that tasks have committed is merged",
    ),
    Hand(
        "classic: the tasks are listed once", COMMIT, "V1JobCommit._left",
        (("if not _is_there(self.parts, paths.merging):\n    yield from found\n    return",
          "yield from found\nreturn"),),
        "a driver beside another one finds no tasks, and its commit fails",
    ),
    Hand(
        "classic: a lost attempt is merged", COMMIT, "V1JobCommit._publish_tasks",
        (("lost and not _is_there(self.parts, paths.merging)", "False"),
         ("[name for name in names if not self._put_back(name)]", "[]")),
        "a job commits without the files of a task that it accepted",
    ),
    Hand(
        "classic: a second driver's merge fails", COMMIT, "V1JobCommit._begin_merge",
        (("if _is_there(self.parts, paths.merging):\n    return", "pass"),),
        "a job whose answer was lost, or that two drivers commit, never ends",
    ),
    Hand(
        "classic: a file that is merged already is lost", COMMIT, "_move",
        (("if not _is_there(parts, entry.path):\n    return", "pass"),),
        "a merge that another process has done fails",
    ),
    Hand(
        "classic: nobody says that files stay", COMMIT, "ClassicJobCommit._abandon",
        (("not stays", "True"),),
        "an abort is told as if nothing were visible",
    ),
    Hand(
        "classic: a decided job is undone", COMMIT, "ClassicJobCommit.abort",
        (("super().abort(revert=False)", "super().abort(revert=revert)"),),
        "a job is told as reverted, and all of its files stay",
    ),
    Hand(
        "classic: any place of a result", COMMIT, "ClassicJobCommit._of",
        (("result.key not in ('', self._key(name))", "False"),),
        "a result of elsewhere is taken for an attempt of the job",
    ),
    Hand(
        "classic: data is not looked for", COMMIT, "V1JobCommit._publish_tasks",
        (("self.job.terms.mode in FAILING", "False"),),
        "mode fail writes beside data that came while the job ran",
    ),
    Hand(
        "classic: a replaced attempt stays aside", COMMIT, "V1JobCommit._put_back",
        (("tree.rename(path, paths.merged(name))", "pass"),),
        "a job commits without a task: another attempt was about to take its place",
    ),
    Hand(
        "classic: what was listed and is gone is left out", COMMIT, "V1JobCommit._publish_tasks",
        (("not self._put_back(name)", "False and not self._put_back(name)"),),
        "a job commits without the files of a task that it has listed",
    ),
    Hand(
        "classic: the look comes before the door is shut", COMMIT, "ClassicJobCommit._stays",
        (("tree.rename(paths.app_attempt, paths.taken(self.parts.ids()))", "pass"),),
        "a task publishes after the look, and nobody says that its files stay",
    ),
    Hand(
        "classic: a look that fails is a refusal", COMMIT, "ClassicJobCommit._stays",
        (("except StoreError as error:", "except MemoryError as error:"),),
        "an abort that took effect is told as an error that says it did nothing",
    ),
    Hand(
        "classic: a late attempt is told that nothing is visible", ATTEMPT, "ClassicAttempt._late",
        (("error.outcome == 'aborted'", "False"),),
        "somebody runs a job again beside files that stay",
    ),
    Hand(
        "classic: an empty directory is the marker", COMMIT, "merge",
        (("place in (TEMPORARY, SUCCESS)", "False"),),
        "a directory that a task has made keeps _SUCCESS from being written",
    ),
)  # fmt: skip
