"""Mutants written by hand: the rules of the S3 adapter, which answers to what servers and networks
really do; and what a cleanup and an abort say of what nobody can see."""

from __future__ import annotations

from tests.mutants.handwork import Hand

S3 = "stores/s3"
REPLIES, RETRY, ASKING = f"{S3}/replies.py", f"{S3}/retry.py", f"{S3}/asking.py"

_ANSWERS = (
    Hand(
        "names of metadata have a case", f"{S3}/values.py", "object_of",
        (("name.lower()", "name"),),
        "I2: behind a Go server (Magic-Committer-Job) a job passes over its own sets",
    ),
    Hand(
        "a 404 of anybody", REPLIES, "look_at",
        (("status == 404 and verb != 'HeadObject' and not whole", "False"),),
        "I2: a load balancer without a backend says that a record is not there",
    ),
    Hand(
        "any page is an empty listing", REPLIES, "look_at",
        (("verb in _ROOTS and root not in (f'{_ROOTS[verb]}Result', f'{_ROOTS[verb]}Response')",
          "False"),),
        "I2: a login page with status 200 is a listing without entries, or a Complete",
    ),
    Hand(
        "a 409 of a conditional Complete is asked again", RETRY, "Attempts._again",
        (("found != 'final' and not (found == 'conflict' and self._conflict_final)",
          "found != 'final'"),),
        "mode fail: the conflict that S3 reports is waited out, for minutes",
    ),
    Hand(
        "only the last try counts as sent", RETRY, "Attempts._once",
        (("self.sent or not never_sent(error)", "not never_sent(error)"),),
        "I2: a request that may have taken effect counts as never sent",
    ),
)  # fmt: skip

_TIME = (
    Hand(
        "a slow byte is enough", f"{S3}/sockets.py", "Deadline.left",
        (("self._begun + self._wait + self._earned", "self._moved_at + self._wait"),
         ("self._until + self._earned_before + self._earned", "self._moved_at + self._wait")),
        "a reply of a byte every 0.3 s never ends",
    ),
    Hand(
        "an early answer buys time", f"{S3}/curl.py", "Transfer.look",
        (("self._starts and sent >= self._length", "self._starts"),),
        "a server that answers before it has the body holds a part for minutes",
    ),
    Hand(
        "a connection with half a body is used again", f"{S3}/curl.py", "Transfer.begin",
        (("int(self.direct)", "0"),),
        "the rest of a refused part is read as the next request",
    ),
    Hand(
        "what the system holds counts as sent", f"{S3}/curl.py", "Transfer.look",
        (("(_unsent(self.socket) if self.socket is not None else 0)", "0"),),
        "the answer's time runs out while a slow server reads what the system still held",
    ),
    Hand(
        "a yes to half a body", f"{S3}/curl.py", "Transfer.answer",
        (("self._read_bytes < self._length", "False"),),
        "a part that was not sent counts as stored",
    ),
    Hand(
        "a waiting thread holds its last body", f"{S3}/curl_threads.py", "_Call.end",
        (("del self.request", "pass"),),
        "no page of memory is used again: twice the system time for a stream",
    ),
    Hand(
        "what was held is not copied", "upload/blocks.py", "Block.append",
        (("self._copy_others()", "None"),),
        "a part has the bytes that were held, and not those that were written after them",
    ),
    Hand(
        "a part of an object is held", "upload/blocks.py", "Block._holds",
        (("in_part = len(data) < memoryview(data.obj).nbytes", "in_part = False"),),
        "many open files hold a hundred times the memory of the budget",
    ),
    Hand(
        "a closed connection ends the program", f"{S3}/curl.py", "_send",
        (("socket.MSG_NOSIGNAL", "0"),),
        "a program of a pipe, which takes SIGPIPE as it comes, is gone without a word",
    ),
    Hand(
        "what may change is held", "upload/stream.py", "UploadStream._write",
        (("type(data) is bytes and HELD_BYTES_MIN <= len(view) <= self._ledger.next_bytes",
          "HELD_BYTES_MIN <= len(view) <= self._ledger.next_bytes"),),
        "a caller that uses its buffer again changes what was written",
    ),
    Hand(
        "each request waits by itself", RETRY, "Attempts.left",
        (("min(own, self._patience.left(self._verb, now, self._seconds_max))", "own"),),
        "a thousand requests to a store that is down wait one after the other",
    ),
    Hand(
        "a decided job is given up as any other", ASKING, "seconds_max",
        (("options.decided_seconds_max", "options.retry_seconds_max"),),
        "a server that is restarted in mid-commit leaves a job half visible",
    ),
    Hand(
        "a Complete has the time of a HEAD", ASKING, "ask",
        (("options.complete_seconds_max if complete else options.read_seconds_max",
          "options.read_seconds_max"),),
        "a Complete that S3 works on for minutes is hung up on, and sent again",
    ),
)  # fmt: skip

_SIGNATURES = (
    Hand(
        "yesterday's key", f"{S3}/signing.py", "Signer._key",
        (("kept is None or kept[0] != secret or kept[1] != day",
          "kept is None or kept[0] != secret"),),
        "from midnight UTC on every request of a process is refused",
    ),
    Hand(
        "the key of secrets that were replaced", f"{S3}/signing.py", "Signer._key",
        (("kept is None or kept[0] != secret or kept[1] != day",
          "kept is None or kept[1] != day"),),
        "after the first refresh of a role's credentials every request is refused",
    ),
)  # fmt: skip

_OUT_OF_SIGHT = (
    Hand(
        "a cleanup believes an empty listing", "maintenance/cleanup.py", "Cleaning.run",
        (("if self._listing_doubted:\n    self._tell_blind_spot()", "pass"),),
        "an all-clear on MinIO, over uploads that stay open",
    ),
    Hand(
        "a file that may be visible is not", "commit/published.py", "Published.any",
        (("bool(self.visible or self.doubtful)", "bool(self.visible)"),),
        "I2: of a Hadoop job that died in its commit the rest is aborted: a torn table",
    ),
)  # fmt: skip

WORLD = (*_ANSWERS, *_TIME, *_SIGNATURES, *_OUT_OF_SIGHT)
