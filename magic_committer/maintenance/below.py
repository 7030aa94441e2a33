"""Where jobs lie below a path: their destinations, found by one flat listing. Reads only.

A job's directory lies directly under its destination, and a bucket may hold hundreds of
destinations. A look at the bucket itself sees none of their jobs. Here all keys below a path are
listed once, and each that lies in a job's directory tells its destination. What is then looked at,
or done, is the work of the calls for one destination.
"""

from __future__ import annotations

from magic_committer._runtime import Progress, Runtime
from magic_committer.errors import PathError
from magic_committer.hadoop.paths import (
    JOB_PREFIX,
    MAGIC,
    MAGIC_JOB_PREFIX,
    Destination,
    is_control_element,
)
from magic_committer.stores.urls import url_of

OBJECTS_MAX = 10_000_000
"""Objects that are listed below one path. S3 gives 1,000 of them a request: 10,000 requests, some
20 minutes, and 5 cents."""
DEEPER_PAGES_MAX = 2
"""Pages of a listing in which `has_deeper` looks for a directory, in requests."""


def jobs_below(
    runtime: Runtime, dest: Destination
) -> tuple[tuple[Destination, ...], tuple[str, ...]]:
    """List all objects below a path once. Gives the destinations that have jobs there, ours or
    Hadoop's, in the order of their keys; and why not all is known, a sentence each. Memory grows
    with the number of destinations, not of objects."""
    found: dict[str, None] = {}
    problems: list[str] = []
    objects, last = 0, ""
    for page in runtime.store.list(dest.prefix):
        if page.objects and objects >= OBJECTS_MAX:
            problems.append(
                f"{objects:,} objects were listed below {dest.url}, up to the key {last}; what"
                " comes after it was not looked at: give a deeper path"
            )
            break
        for info in page.objects:
            last = info.key
            if (prefix := destination_of(last)) is not None:
                found[prefix] = None
        objects += len(page.objects)
        runtime.progress(Progress("list", objects, None, "objects"))
    destinations: list[Destination] = []
    for prefix in found:
        try:
            destinations.append(Destination(dest.bucket, prefix).alone)
        except PathError as error:
            where = url_of(dest.bucket, prefix)
            problems.append(f"there are jobs under {where} that cannot be looked at: {error}")
    return tuple(destinations), tuple(problems)


def destination_of(key: str) -> str | None:
    """The destination's prefix of the job in whose directory a key lies; None for every other key.
    The first such directory counts: what lies in one is nobody's destination. Pure."""
    if MAGIC not in key:  # nearly all keys: they are not taken apart
        return None
    elements = key.split("/")
    for index, element in enumerate(elements[:-1]):
        older = element == MAGIC and elements[index + 1].startswith(JOB_PREFIX)
        if element.startswith(MAGIC_JOB_PREFIX) or (older and index + 2 < len(elements)):
            return "/".join((*elements[:index], ""))
        if is_control_element(element):
            return None
    return None


def has_deeper(runtime: Runtime, dest: Destination) -> bool:
    """Whether a path has directories of data below it, in which a look at the path itself sees no
    job. True also where `DEEPER_PAGES_MAX` pages do not tell. At most so many requests."""
    for number, page in enumerate(runtime.store.list(dest.prefix, delimiter="/"), 1):
        below = (prefix[len(dest.prefix) : -1] for prefix in page.prefixes)
        if not all(map(is_control_element, below)) or number > DEEPER_PAGES_MAX:
            return True
    return False
