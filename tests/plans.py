"""A stored plan as one JSON object, for tests that look at one, or forge one."""

from __future__ import annotations

from typing import Any

import orjson

ROWS = ("sets", "deletes", "partitions")


def read_plan(data: bytes) -> dict[str, Any]:
    """The head of a plan, with its rows in place of their numbers."""
    head, *lines = map(orjson.loads, data.splitlines())
    rows = iter(lines)
    return {**head, **{name: [next(rows) for _ in range(head[name])] for name in ROWS}}


def write_plan(plan: dict[str, Any]) -> bytes:
    """The bytes of what `read_plan` gave, changed."""
    head = {**plan, **{name: len(plan[name]) for name in ROWS}}
    lines = (head, *(row for name in ROWS for row in plan[name]))
    return b"".join(orjson.dumps(line) + b"\n" for line in lines)
