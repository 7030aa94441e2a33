"""Mutants written by hand: the rules of the S3 adapter, which answers to what servers and networks
really do; and what a cleanup and an abort say of what nobody can see."""

from __future__ import annotations

from tests.mutants.handwork import Hand

S3 = "stores/s3"
ANSWERS, RETRY, HTTP = f"{S3}/answers.py", f"{S3}/retry.py", f"{S3}/http.py"

_ANSWERS = (
    Hand(
        "names of headers have a case", HTTP, "_named",
        (('said.decode("latin-1").lower()', 'said.decode("latin-1")'),),
        "I2: behind a Go server (Magic-Committer-Job) a job passes over its own sets",
    ),
    Hand(
        "a 404 of anybody", ANSWERS, "_refusal",
        (('status == 404 and operation != "HeadObject"', "False"),),
        "I2: a load balancer without a backend says that a record is not there",
    ),
    Hand(
        "any page is an empty listing", ANSWERS, "_read_document",
        (('root is None or name not in (f"{wanted.root}Result", f"{wanted.root}Response")',
          "root is None"),),
        "I2: another service's document with status 200 is a listing without entries",
    ),
    Hand(
        "a document that defines its own words", ANSWERS, "_root",
        (("not _BEGINNING.match(body)", "False"),),
        "I4: an upload is told to be gone by an entity that a proxy has defined",
    ),
    Hand(
        "a 409 of a conditional Complete is asked again", RETRY, "Attempts._again",
        (('found != "final" and not (found == "conflict" and self._call.conflict_final)',
          'found != "final"'),),
        "mode fail: the conflict that S3 reports is waited out, for minutes",
    ),
    Hand(
        "only the last try counts as sent", RETRY, "Attempts.failed",
        (("self.sent or not never_sent(error)", "not never_sent(error)"),),
        "I2: a request that may have taken effect counts as never sent",
    ),
    Hand(
        "an abort is sent again", RETRY, "Attempts._again",
        (("1 if self._call.once else self._options.retry_attempts_max",
          "self._options.retry_attempts_max"),),
        "I2: an abort goes out on a look that is minutes old",
    ),
)  # fmt: skip

_TIME = (
    Hand(
        "a slow byte is enough", HTTP, "Deadline.left",
        (("min(self._silence_ends, self._phase_ends, self._ends)", "self._silence_ends"),),
        "a reply of a byte every 0.3 s never ends",
    ),
    Hand(
        "a yes to half a body", HTTP, "Connection.exchange",
        (("not whole and answer.status < 300", "False"),),
        "a part that was not sent counts as stored",
    ),
    Hand(
        "a connection with half a body is used again", HTTP, "Connection.exchange",
        (("whole and reading.keeps_open", "reading.keeps_open"),),
        "the rest of a refused part is read as the next request",
    ),
    Hand(
        "bytes behind an answer are kept", HTTP, "_Reading.keeps_open",
        (("self._goes_on and not self.spoilt", "self._goes_on"),),
        "a second answer, which nobody asked for, answers the next request",
    ),
    Hand(
        "a connection is not looked at", HTTP, "Connection.is_quiet",
        (("sock.recv(1)", "raise BlockingIOError"),),
        "a request on a connection that the server has closed counts as perhaps sent",
    ),
    Hand(
        "an early refusal is not heard", HTTP, "Connection._send",
        (("ready & READ and self._hear(reading)", "False"),),
        "a server that refuses a part and reads no more holds it until the deadline",
    ),
    Hand(
        "a head without an end", HTTP, "_Reading.feed",
        (("self.in_head and self._head_bytes > HEAD_BYTES_MAX", "False"),),
        "a server that is none fills the memory",
    ),
    Hand(
        "a line break in a header", HTTP, "Connection._pieces",
        (('text.count("\\n") != lines', "False"), ('text.count("\\r") != lines', "False")),
        "what stands behind it is another header, or another request",
    ),
    Hand(
        "a checksum does not go on", "upload/blocks.py", "Block.append",
        (("min(self.held, self._summed + SUM_BYTES)", "self.held"),),
        "a full block is hashed when it has left the cache: thrice the time",
    ),
    Hand(
        "each request waits by itself", RETRY, "Attempts.left",
        (("min(left, self._patience.left(self._call.verb, now, self._seconds_max))", "left"),),
        "a thousand requests to a store that is down wait one after the other",
    ),
    Hand(
        "a decided job is given up as any other", RETRY, "seconds_max",
        (("options.decided_seconds_max", "options.retry_seconds_max"),),
        "a server that is restarted in mid-commit leaves a job half visible",
    ),
    Hand(
        "a Complete has the time of a HEAD", RETRY, "Attempts.begin",
        (("options.complete_seconds_max if waits else options.read_seconds_max",
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
        "a cleanup believes an empty listing", "maintenance/cleanup.py", "Cleaning._abort_named",
        (("survey.shows_more_than_keys", "True"),),
        "an all-clear on MinIO, over uploads that stay open",
    ),
    Hand(
        "a file that may be visible is not", "commit/published.py", "Published.any",
        (("bool(self.visible or self.doubtful)", "bool(self.visible)"),),
        "I2: of a Hadoop job that died in its commit the rest is aborted: a torn table",
    ),
)  # fmt: skip

WORLD = (*_ANSWERS, *_TIME, *_SIGNATURES, *_OUT_OF_SIGHT)
