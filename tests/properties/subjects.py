"""Who is compared. A production committer is a line here, and a `subject.Subject` of its own.

A column may have variants: a property holds for it if it holds for each of them.
"""

from __future__ import annotations

from tests.properties.flawed import Locked, SharedList
from tests.properties.in_place import Direct, Stocator
from tests.properties.renames import FileOutput
from tests.properties.subject import Subject
from tests.properties.uploads import Directory, Magic, Partitioned

OURS: dict[str, tuple[Subject, ...]] = {
    "magic": (Magic("magic, by results"), Magic("magic, by listing", "s3", "listing")),
    "directory": (Directory("directory", accept="listing"),),
    "partitioned": (Partitioned("partitioned"),),
}
"""The library's committers."""

FOILS: dict[str, tuple[Subject, ...]] = {
    "v1": (FileOutput("v1", 1),),
    "v2": (FileOutput("v2", 2),),
    "direct": (Direct(),),
    "Stocator": (Stocator(),),
    "Stocator, any reader": (Stocator("Stocator, any reader", plain=True),),
}
"""What others do on S3, written for these tests."""

FLAWED: dict[str, tuple[Subject, ...]] = {
    "shared list": (SharedList(),),
    "locked": (Locked(),),
}
"""Not in the table: see `flawed`."""
