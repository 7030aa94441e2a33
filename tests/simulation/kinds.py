"""Names for requests: the verb and what it is about, as tables and faults speak of them."""

from __future__ import annotations

from magic_committer.stores.memory import Request


def shown(key: str) -> str:
    """A key of a job as tests call it: a destination that is a directory of its own has none of
    what theirs begin with."""
    return key if key.startswith("t/") else f"t/{key}"


def object_of(key: str) -> str:
    name = key.rpartition("/")[2]
    if key.startswith("t/_temporary/"):
        return "pendingset"
    if "/__magic_stream/" in key:
        return "ledger"
    if "/__magic" not in key:
        return name if name == "_SUCCESS" else "data"
    if name == "_job.json":
        return "record"
    if name.startswith("_plan-"):
        return "plan"
    for suffix in ("pendingset", "pending"):
        if name.endswith(f".{suffix}"):
            return suffix
    return "magic file"


def kind_of(request: Request) -> str:
    verb, key = request.verb, request.key
    if verb in ("put", "get", "head", "delete_one"):
        what = object_of(key)
        if verb == "put" and what == "record":
            return "create record" if request.if_none_match else "swap record"
        return f"{verb} {what}"
    if verb == "list":
        if key.endswith(("/00/", "/00/manifests/")):
            return "list pendingsets"
        if key.endswith("__magic_job-"):
            return "list jobs"
        if key.endswith("/__magic/job-"):
            return "list older jobs"
        if "/tasks/" in key:
            return "list attempt"
        return "list job" if "/__magic_job-" in key else "list destination"
    return verb


KINDS = (
    "create record", "swap record", "get record", "head record", "delete_one record",
    "put plan", "get plan", "head plan", "delete_one plan",
    "put pendingset", "get pendingset", "head pendingset", "delete_one pendingset",
    "put pending", "get pending", "head pending", "delete_one pending",
    "put magic file", "head magic file", "delete_one magic file",
    "put ledger", "get ledger",
    "put _SUCCESS", "get _SUCCESS", "head _SUCCESS", "delete_one _SUCCESS",
    "head data", "delete_one data",
    "create_upload", "put_part", "list_parts", "complete_upload", "abort_upload", "list_uploads",
    "list pendingsets", "list job", "list jobs", "list older jobs", "list attempt",
    "list destination", "delete",
)  # fmt: skip
"""The kinds that the library sends."""

WRITES = tuple(
    kind
    for kind in KINDS
    if kind.startswith(("put", "create", "swap", "delete", "complete", "abort"))
)
"""Kinds that change something."""

ON_LITTER = (
    "delete_one plan", "delete_one pendingset", "delete_one pending", "delete_one pendingset",
    "delete_one pending", "head pendingset", "head pending", "head plan", "get pending",
)  # fmt: skip
"""Kinds that a cleanup sends where a former job has left something."""

ON_REPLACED = (
    "head _SUCCESS", "delete_one _SUCCESS", "head _SUCCESS", "delete_one _SUCCESS", "head data",
    "delete_one data", "get _SUCCESS",
)  # fmt: skip
"""Kinds that a job sends which replaces what is there."""
ON_TREE = (
    "head magic file", "put magic file", "list attempt", "get pending", "delete_one magic file",
)  # fmt: skip
"""Kinds that attempts send which are tracked on the store."""
ON_TROUBLE = (
    "get plan", "head data", "list_parts", "put plan", "delete_one data", "get plan",
    "delete_one record",
)  # fmt: skip
"""Kinds that are sent where something went wrong before, and two that any job may send."""

RARE = (
    "list_parts", "delete_one plan", "head pending", "head _SUCCESS", "delete_one _SUCCESS",
    "get plan", "head plan", "delete_one data", "put _SUCCESS", "get _SUCCESS", "delete_one record",
)  # fmt: skip
"""Kinds that few schedules send: faults go for them more often."""
