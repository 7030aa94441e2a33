"""Mutants of the rules of streaming queries, written by hand: each takes one of them away."""

from __future__ import annotations

from tests.mutants.handwork import Hand

LEDGER, LEDGERS, RULES = "protocol/ledger.py", "commit/ledgers.py", "protocol/rules.py"
BATCHES = "commit/batches.py"
JOB_COMMIT, FORCE = "commit/job_commit.py", "maintenance/force.py"
OF_STREAMS = "maintenance/streams.py"
TREE_LEDGERS, TREE_COMMIT = (
    "committers/manifest/ledgers.py",
    "committers/manifest/job_commit.py",
)
TREE_RUNS, TREE_SETUP = "committers/manifest/runs.py", "committers/manifest/setup.py"

STREAMS = (
    Hand(
        "stream: each batch looks at old records", "commit/closed.py", "tidies",
        (("batch.number % BATCHES_PER_LOOK == 0", "True"),),
        "a batch a second costs a hundred GETs a second",
    ),
    Hand(
        "stream: a published batch is not skipped", LEDGER, "Ledger.covers",
        (("self.done is not None and self.done >= number", "False"),),
        "I2: a batch that is run again is published again",
    ),
    Hand(
        "stream: an older batch is published", LEDGER, "Ledger.covers",
        (("self.done >= number", "self.done == number"),),
        "I2: a zombie's batch comes after a later one",
    ),
    Hand(
        "stream: nobody claims", LEDGER, "next_move",
        (("return Move.DECIDE if ledger.claim.number == number else Move.CLAIM",
          "return Move.DECIDE"),
         ("if ledger.claim is None:\n    return Move.CLAIM",
          "if ledger.claim is None:\n    return Move.DECIDE")),
        "I2: a driver that is paused after its look publishes the batch a second time",
    ),
    Hand(
        "stream: a claim is taken without a settlement", BATCHES, "claim_batch",
        (("settle(stored.ledger.claim)", "False"),),
        "I2: the claimant, decided or paused, publishes the batch too",
    ),
    Hand(
        "stream: a committing claimant counts as settled", RULES, "may_take_claim",
        (("state in (State.ABORTING, State.REVERTED, State.CLOSED, State.ABSENT)",
          "state is not State.RUNNING"),),
        "I2: the next run publishes beside a job that is decided",
    ),
    Hand(
        "stream: what cannot be settled is passed over", BATCHES, "settle_claim",
        (("raise unsettled(job, batch, claim, error.message) from error", "return"),),
        "I2: the claimant's files are completed later, beside the next run's",
    ),
    Hand(
        "stream: Ctrl-C tells of the claimant only", "commit/outcome.py", "for_another_job",
        (("(_TOLD, 'report')", "()"),),
        "I10: who interrupts a commit is told of another job that it is committed",
    ),
    Hand(
        "stream: the ledger is not written before finish", JOB_COMMIT, "JobCommit._go_on",
        (("self._say_published(now, publication.warnings)", "pass"),),
        "I2: a claim of a closed job is taken, and its batch published again",
    ),
    Hand(
        "stream: the record does not name its batch", JOB_COMMIT, "JobCommit._swap_to_committing",
        (("seen.record.step(State.COMMITTING, self.runtime.ids(), decider=decider('driver'),"
          " plan=offer.plan, batch=self.batch)",
          "seen.record.step(State.COMMITTING, self.runtime.ids(), decider=decider('driver'),"
          " plan=offer.plan)"),),
        "I2: a recovery finishes the job without its ledger",
    ),
    Hand(
        "stream: a job of a query needs no batch", JOB_COMMIT, "JobCommit._commit_running",
        (("raise batch_needed(self.job)", "pass"),),
        "I2: it is published beside the ledger, and the next run publishes again",
    ),
    Hand(
        "stream: another job's claim is published", BATCHES, "publish_batch",
        (("ledger.claim.uuid != job.uuid", "False"),),
        "I2: a batch that its claimant has not published is said to be",
    ),
    Hand(
        "stream: a job may be finished as another batch", BATCHES, "refuse_other_batch",
        (("record.batch == batch", "True"),),
        "I10: the caller is told that a batch is published, and another one is",
    ),
    Hand(
        "stream: an overtaken run is told an error", JOB_COMMIT, "JobCommit.commit",
        (("if told is None:\n    raise", "raise"),),
        "I10: a batch that another run has published fails the query",
    ),
    Hand(
        "stream: an unconditional ledger", LEDGERS, "StoreLedgers.write",
        (("store.put(leaves.key, body, if_match=etag)", "store.put(leaves.key, body)"),),
        "I2: a late claim takes the place of a published batch",
    ),
    Hand(
        "stream: a ledger of another query is believed", LEDGERS, "decoded",
        (("ledger.query != query", "False"),),
        "I2: a copied ledger makes a query skip its batches",
    ),
    Hand(
        "stream: a batch without conditional writes", BATCHES, "refuse_unconditional",
        (("job.terms.conditional_writes == 'off'", "False"),),
        "I2: two runs write the ledger over each other",
    ),
    Hand(
        "stream: a job that is given up leaves the ledger alone", FORCE, "_readable",
        (("why = _say_published(giving, StartedJob.attached(record, dest.url, ''), record.batch)",
          "pass"),),
        "I2: its files stay visible, and the batch is published again",
    ),
    Hand(
        "streams: a copied checkpoint is passed over", LEDGER, "Ledger.is_of_another",
        (("self.checkpoint not in ('', checkpoint)", "False"),),
        "the rows of a second query are nowhere, and it is told that they are published",
    ),
    Hand(
        "streams: a number that goes back is told nowhere", BATCHES, "tell_passed_over",
        (("done == batch.number", "True"),),
        "a query with a new checkpoint writes nothing, and nobody knows",
    ),
    Hand(
        "streams: a job that has ended meanwhile is an error", OF_STREAMS, "abort_jobs_of",
        (("not _has_ended(runtime, seen)", "True"),),
        "a query does not start, because an earlier run ends at this moment",
    ),
    Hand(
        "streams: what is not answered has ended", OF_STREAMS, "abort_jobs_of",
        (("not _has_ended(runtime, seen)", "False"),),
        "I10: an abort that nobody answered is told as done",
    ),    Hand(
        "tree stream: a version that was deleted is won", TREE_LEDGERS, "TreeLedgers.write",
        (("now.nonce == ledger.nonce", "True"),),
        "I2: a driver that was paused for many batches claims beside the newest version",
    ),
    Hand(
        "tree stream: the newest version is what a listing shows", TREE_LEDGERS, "TreeLedgers.read",
        (("while (behind := self._data(directory, newest + 1)) is not None:\n"
          "    data, newest = (behind, newest + 1)", "pass"),),
        "I2: a listing that lags shows a batch as not published",
    ),
    Hand(
        "tree stream: a listing proves that there is no ledger", TREE_LEDGERS, "TreeLedgers.read",
        (("data is None and newest == 1", "not list(self._listed(directory))"),),
        "I2: a listing that lags shows no batch as published",
    ),
    Hand(
        "tree stream: the first version is deleted", TREE_LEDGERS, "TreeLedgers._prune",
        (("1 < number < newest - VERSIONS_KEPT", "number < newest - VERSIONS_KEPT"),),
        "I2: an old driver makes a ledger from its beginning",
    ),
    Hand(
        "tree stream: all old versions are deleted", TREE_LEDGERS, "TreeLedgers._prune",
        (("1 < number < newest - VERSIONS_KEPT", "1 < number < newest"),),
        "I2: a listing that lags shows none of those that are left",
    ),
    Hand(
        "tree stream: no old version is deleted", TREE_LEDGERS, "TreeLedgers._prune",
        (("1 < number < newest - VERSIONS_KEPT", "False"),),
        "a query of a year has a directory of millions of files",
    ),
    Hand(
        "tree stream: links are followed", TREE_LEDGERS, "TreeLedgers._check",
        (("RealDirectories(self._parts).check(_path(directory, 1))", "pass"),),
        "a link leads the ledger out of the destination",
    ),
    Hand(
        "tree stream: a claim is taken without a settlement", TREE_COMMIT, "TreeJobCommit._claim",
        (("return settle_claim(self.job, batch, claim, self._claimant)", "return False"),),
        "I2: the claimant, decided or paused, publishes the batch too",
    ),
    Hand(
        "tree stream: the ledger is not written before the end", TREE_COMMIT,
        "TreeJobCommit._finish_committed",
        (("self._say_published(record, warnings)", "pass"),),
        "I2: a claim of a job that has ended is taken, and its batch published again",
    ),
    Hand(
        "tree stream: the record does not name its batch", TREE_COMMIT, "TreeJobCommit._decide",
        (("seen.record.step(State.COMMITTING, self.parts.ids(), decider=decider('driver'),"
          " plan=plan.ref, batch=self.batch)",
          "seen.record.step(State.COMMITTING, self.parts.ids(), decider=decider('driver'),"
          " plan=plan.ref)"),),
        "I2: a recovery finishes the job without its ledger",
    ),
    Hand(
        "tree stream: who is passed over was not decided", TREE_COMMIT, "TreeJobCommit._skip",
        (("interrupted(half_aborted(self.job))", "interrupted(undecided(self.job))"),),
        "I10: Ctrl-C while a run is aborted: its note says to commit it again",
    ),
    Hand(
        "tree stream: a job of a query needs no batch", TREE_COMMIT,
        "TreeJobCommit._commit_running",
        (("raise batch_needed(self.job)", "pass"),),
        "I2: it is published beside the ledger, and the next run publishes again",
    ),
    Hand(
        "tree stream: a job may be finished as another batch", TREE_COMMIT, "TreeJobCommit._obey",
        (("refuse_other_batch(record, self.batch)", "pass"),),
        "I10: the caller is told that a batch is published, and another one is",
    ),
    Hand(
        "tree stream: an overtaken run is told an error", TREE_COMMIT, "TreeJobCommit.commit",
        (("if told is None:\n    raise", "raise"),),
        "I10: a batch that another run has published fails the query",
    ),
    Hand(
        "tree stream: the ledger is not asked when the record is gone", TREE_COMMIT,
        "TreeJobCommit._without_record",
        (("(told := self._published('')) is not None", "False"),),
        "I10: a committed batch is told as unknown",
    ),
    Hand(
        "tree stream: a crashed run is in the way for ever", TREE_RUNS, "settle_runs",
        (("TreeJobCommit(parts, job, 'recovery').settle(seen.record.state)", "pass"),),
        "a query of complete mode does not start again after a crash",
    ),
    Hand(
        "tree stream: every job is a run of the query", TREE_RUNS, "runs_of",
        (("seen.record.checkpoint == checkpoint", "True"),),
        "I6: a stream's start aborts jobs that are none of its own",
    ),
    Hand(
        "tree stream: a job of another query is joined", TREE_SETUP, "join_job",
        (("seen.record.checkpoint != checkpoint", "False"),),
        "I2: a job of a query is committed without its ledger",
    ),
    Hand(
        "tree stream: a job that is given up leaves the ledger alone", "maintenance/trees.py",
        "force_abort_tree",
        (("'' if dry_run else _say_published(parts, seen)", "''"),),
        "I2: its files stay visible, and the batch is published again",
    ),
    Hand(
        "tree stream: classic committers take batches", "committers/manifest/__init__.py",
        "ManifestCommitter._refuse_batch", (("not cls.takes_batches", "False"),),
        "I2: what a dead run has made visible is written again",
    ),
    Hand(
        "tree stream: a version that was made anew is believed", TREE_LEDGERS, "TreeLedgers.read",
        (("newest > listed and newest < max(self._listed(directory), default=1)", "False"),),
        "I2: a process that stood still decides by a claim that was never won",
    ),
    Hand(
        "tree stream: a job that completes meanwhile is given up unheard", "maintenance/trees.py",
        "force_abort_tree",
        (("now is not None and now.record.state in (State.COMPLETED, State.CLOSED)", "False"),),
        "I2: its files are visible, no ledger says so, and the batch is published again",
    ),
    Hand(
        "tree stream: a job that is publishing is given up at once", "maintenance/trees.py",
        "force_abort_tree",
        (("now is not None and now.record.state is State.COMMITTING", "False"),),
        "I1: its driver lives, and half of its files are visible for ever",
    ),
    Hand(
        "tree stream: a create that took effect is told as a refusal", "file_trees/local.py",
        "LocalTree.create", (("isinstance(told, NotFound)", "True"),),
        "I10: a committed job is told as not decided",
    ),
    Hand(
        "stream: a claimant without a record is taken silently", BATCHES, "claim_batch",
        (("_tell_lost(batch, lost)", "pass"),),
        "rows are there twice, and nobody learns it",
    ),
)  # fmt: skip
"""All of them."""
