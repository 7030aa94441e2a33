"""Mutants of the rules of streaming queries, written by hand: each takes one of them away."""

from __future__ import annotations

from tests.mutants.handwork import Hand

LEDGER, RULES = "protocol/ledger.py", "protocol/rules.py"
BATCHES = "commit/batches.py"
JOB_COMMIT, FORCE = "commit/job_commit.py", "maintenance/giving_up.py"
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
        (("self._swap(seen, State.COMMITTING, decider=decider('driver'), plan=offer.plan,"
          " batch=self.batch)",
          "self._swap(seen, State.COMMITTING, decider=decider('driver'), plan=offer.plan)"),),
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
        "stream: an unconditional ledger", BATCHES, "Ledgers.write",
        (("store.put(leaves.key, body, if_match=etag)", "store.put(leaves.key, body)"),),
        "I2: a late claim takes the place of a published batch",
    ),
    Hand(
        "stream: a ledger of another query is believed", BATCHES, "Ledgers.read",
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
    ),
    Hand(
        "stream: a claimant without a record is taken silently", BATCHES, "claim_batch",
        (("_tell_lost(batch, lost)", "pass"),),
        "rows are there twice, and nobody learns it",
    ),
)  # fmt: skip
"""All of them."""
