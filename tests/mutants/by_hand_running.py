"""Mutants written by hand: the rules of `run`, and of ``magic-committer put``."""

from __future__ import annotations

from tests.mutants.handwork import Hand

TRIES, CALL, ITEMS = "engines/tries.py", "engines/executors.py", "engines/items.py"
PUT = "cli/put.py"

RUNNING = (
    Hand(
        "run: every try that ends well counts",
        TRIES,
        "Tries.ended_well",
        (("one.of.accepted", "False"),),
        "a task has two results: the commit is refused, after all work was done",
    ),
    Hand(
        "run: the iterable is read to its end",
        TRIES,
        "Tries.next",
        (
            ("len(self.flying) + len(self._due) < self.in_flight", "True"),
            ("len(self.flying) >= self.in_flight", "False"),
        ),
        "a generator of millions is in memory",
    ),
    Hand(
        "run: failed items take no room",
        TRIES,
        "Tries.next",
        (("len(self.flying) + len(self._due) < self.in_flight", "True"),),
        "where every item fails, all of them are in memory",
    ),
    Hand(
        "run: the policy alone ends an item",
        TRIES,
        "Tries.ended_badly",
        (("item.failures >= self.tries_max", "False"),),
        "an item that always fails is tried for ever",
    ),
    Hand(
        "run: a failed try does not wait for its twin",
        TRIES,
        "Tries.ended_badly",
        (("item.flying", "False"),),
        "an item is given up while a try of it runs",
    ),
    Hand(
        "run: what waits in a queue is slow",
        TRIES,
        "Tries._begin",
        (("Try(item, self.begun, float('inf'))", "Try(item, self.begun, now)"),),
        "with one worker each item is done twice",
    ),
    Hand(
        "run: a slow try is doubled again and again",
        TRIES,
        "Tries._double",
        (("not one.of.doubled", "True"),),
        "a straggler takes the whole executor",
    ),
    Hand(
        "run: a broken executor stays",
        CALL,
        "Executors._broke",
        (("number == self._number", "False"),),
        "one killed worker ends the job, though another executor could be made",
    ),
    Hand(
        "run: each call that broke makes an executor",
        CALL,
        "Executors._broke",
        (("number == self._number", "True"),),
        "a pool is shut down for the break of the one before it",
    ),
    Hand(
        "run: the caller's executor is shut down",
        CALL,
        "Executors.close",
        (("self.make is not None and self.executor is not None", "self.executor is not None"),),
        "the caller's next job has no executor",
    ),
    Hand(
        "run: an ended job is tried again",
        CALL,
        "Executors._failed",
        (("isinstance(error, JobNotRunning) and error.job_id == self._work.job.id", "False"),),
        "an operator's abort is told as the failure of an item",
    ),
    Hand(
        "run: nothing returned is too much",
        ITEMS,
        "_Accepted.__call__",
        (("self.size > RETURNED_BYTES_MAX", "False"),),
        "the caller's memory ends the job",
    ),
    Hand(
        "run: no items are no error",
        CALL,
        "Executors.run",
        (("not self.tries.taken", "False"),),
        "a wrong list with mode replace empties the table",
    ),
    Hand(
        "run: nothing is cancelled",
        CALL,
        "Executors._stop",
        (("future.cancel()", "pass"),),
        "after Ctrl-C all that was handed over still runs",
    ),
    Hand(
        "run: what is returned is pickled after the commit",
        ITEMS,
        "ItemWriter._write",
        (("pickled = self._pickled(returned)", "pickled = pickle.dumps(returned)"),),
        "a value of any size is sent",
    ),
    Hand(
        "put: what has changed is published",
        PUT,
        "_refuse_changes",
        (("(done.files, done.bytes, done.left_out) != counted_before", "False"),),
        "what the question said is not what is put",
    ),
    Hand(
        "put: only what is there is asked about",
        PUT,
        "_publish",
        (("putting.mode not in FAILING and not yes", "False"),),
        "a table is replaced without a question",
    ),
    Hand(
        "put: written over, not told",
        PUT,
        "Putting.look",
        (("not self.unique", "False"),),
        "the question names fewer objects than are lost",
    ),
)
