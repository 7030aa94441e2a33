"""The rules that can be taken away, in tests only, and the promise that breaks without each.

`RULES` is the registry: a test searches each rule's configuration without the rule and wants the
named promise broken, and searches every configuration with all rules in place and wants nothing
broken. `python -m tests.model --table` prints it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.model.configurations import CONFIGURATIONS
from tests.model.search import Search
from tests.model.trace import Result


@dataclass(frozen=True)
class Rule:
    """A rule of the protocol.

    Attributes:
        name: by which the actors ask for it (`Job.keeps`).
        section: of protocol.md.
        promise: the one that is broken without it.
        configuration: where.
        faults: that this takes at least; 0: a pause is enough.
        requests: of the shortest trace.
    """

    name: str
    section: str
    promise: str
    configuration: str
    faults: int
    requests: int

    def search(self, faults: int | None = None) -> Result:
        made = CONFIGURATIONS[self.configuration](frozenset({self.name}))
        return Search(made, self.faults if faults is None else faults).run()


RULES = (
    # Objects, the job record
    Rule("a plan for each try", "Objects", "I2", "two drivers", 0, 18),
    Rule("the decision is a swap", "The job record", "I3", "abort", 0, 9),
    Rule("a UUID for each run", "The job record", "I1", "id used again", 0, 17),
    Rule("a given id stays closed", "The job record", "I6", "id swept twice", 0, 21),
    Rule("a withdrawn given id is swept", "The job record", "I4", "withdrawn", 0, 11),
    Rule("a state `completed`", "The job record", "I5", "recoveries", 0, 17),
    Rule("a state `reverted`", "The job record", "I4", "revert", 0, 35),
    Rule("all others leave `closed`", "The job record", "I5", "setup", 1, 9),
    Rule("a retried setup is closed", "The job record", "I5", "setup", 1, 8),
    Rule("absent means unknown", "The job record", "I10", "two drivers", 0, 15),
    Rule("an unanswered swap is unknown", "The job record", "I10", "recoveries", 1, 8),
    Rule(
        "a refused swap after an unanswered one is unknown",
        "The job record",
        "I10",
        "refused after unanswered",
        1,
        20,
    ),
    # The fence
    Rule("a second read of the fence", "The fence", "I4", "attempts", 0, 25),
    Rule("hands off while committing", "The fence", "I5", "two drivers", 0, 19),
    Rule("hands off while reverting", "The fence", "I5", "revert", 0, 22),
    Rule("a read after each .pending", "The fence", "I4", "opened by path", 0, 11),
    Rule("the set before the fence", "The fence", "I2", "closed too late", 0, 18),
    Rule("a read after each sign of life", "decisions.md: Liveness", "I4", "opened by path", 0, 14),
    Rule("claim before undo", "The fence", "I5", "two handles", 0, 20),
    Rule("a read after each claim", "The fence", "I4", "two handles", 0, 23),
    Rule("look first", "The fence", "I2", "costly aborts", 0, 19),
    Rule("the sweep looks first", "Job commit, 8", "I2", "costly recoveries", 0, 19),
    Rule("a retried Create looks for its twin", "The fence", "I4", "attempts", 1, 25),
    # Job commit
    Rule("a job of messages is never listed", "Task commit and abort", "I9", "other attempt", 0, 8),
    Rule("the loser deletes its plan", "Job commit, 3", "I4", "two drivers", 0, 25),
    Rule("complete before delete", "Job commit, 5 and 6", "I7", "replace", 0, 11),
    Rule("completing is repeatable", "Completing an upload", "I5", "recoveries", 0, 14),
    Rule("recovery reads the plan", "Recovery", "I9", "other attempt", 0, 11),
    Rule("If-Match on deletes", "Job commit, 6", "I6", "replace", 0, 16),
    Rule("a later marker is left", "Job commit, 7", "I8", "two markers", 0, 24),
    Rule("`completed` names the marker", "Job commit, 7", "I8", "two markers in a second", 0, 35),
    Rule("set up, then look", "Conflict modes", "I2", "two replace jobs", 0, 25),
    Rule("the oldest waits", "Conflict modes", "I2", "two replace jobs", 0, 27),
    Rule("the loser withdraws its announcement", "Conflict modes", "I4", "partition rivals", 0, 35),
    Rule("announced before the look", "Conflict modes", "I2", "two partition replaces", 0, 30),
    Rule("the look at the plans", "Conflict modes", "I2", "two partition fails", 0, 20),
    Rule("the older waits by partition", "Conflict modes", "I2", "two partition replaces", 0, 34),
    Rule("the data is listed after the look", "Conflict modes", "I2", "two partition fails", 0, 28),
    Rule("only appends are spared", "Conflict modes", "I2", "two partition replaces", 1, 42),
    Rule("spared whole or not at all", "Conflict modes", "I2", "append beside replace", 0, 32),
    Rule(
        "a set that is gone is no end", "Conflict modes", "I2", "late attempt beside replace", 0, 27
    ),
    Rule("the look at the decided", "Conflict modes", "I2", "append beside replace", 0, 19),
    Rule("the data is listed again", "Conflict modes", "I2", "append beside replace", 0, 26),
    Rule("`fail` never overwrites", "Conflict modes", "I6", "conflict", 0, 10),
    Rule("a conflict reverts", "Conflict modes", "I5", "conflict", 0, 12),
    Rule("never by inference", "Whose upload is it?", "I6", "foreign upload", 0, 14),
    # Recovery
    Rule("revert has its own state", "Recovery", "I2", "replace", 0, 21),
    Rule("abort, then HEAD, then delete", "Recovery", "I3", "replace", 0, 19),
    Rule("no adoption of our tokens", "Recovery", "I1", "adoption", 0, 18),
    # Streams
    Rule("a claim in the ledger", "Streams", "I2", "stream", 0, 14),
    Rule("the record before the claim", "Streams", "I2", "stream", 0, 20),
    Rule("a settled run stays closed", "Streams", "I5", "stream", 1, 16),
    Rule("an unsettled run stops the next", "Streams", "I2", "stream", 1, 26),
    Rule("the ledger before finish", "Streams", "I2", "stream recovered", 0, 27),
)

NOT_SEARCHED = (
    ("A read of the fence covers only Creates that were answered before it was sent",
     "here an attempt sends one request after the other; production's threads do not"),
    ("Last-Modified beside the ETag: empty files, and files of the same bytes, have one ETag",
     "here an ETag is a body, and a second write of it is no change"),
    ("ETags quoted and unquoted, ETags of parts that change under SSE-KMS",
     "here an ETag is a body"),
    ("Uploads are listed again until none shows, pages of listings, batches of deletes",
     "here a listing is consistent and whole, and an abort is final"),
    ("Uploads are open before the decision",
     "it narrows a window that a neighbour's abort can still hit"),
    ("A fresh nonce in every `_SUCCESS`", "not modelled: a late marker is excused for a moment"),
    ("The first read of the fence", "it stops zombies early; the second read catches all"),
)  # fmt: skip
"""Rules that this search cannot see, and why: the simulator's, where they are anybody's."""


def table() -> str:
    """The rules as a Markdown table, then those that are not searched."""
    lines = [
        "| Rule taken away | Section | Broken | Configuration | Faults | Requests |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {r.name} | {r.section} | {r.promise} | {r.configuration} | {r.faults} | {r.requests} |"
        for r in RULES
    ]
    lines += ["", "| Not seen by the search | Why |", "| --- | --- |"]
    lines += [f"| {name} | {why} |" for name, why in NOT_SEARCHED]
    return "\n".join(lines)
