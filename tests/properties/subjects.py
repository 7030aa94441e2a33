"""Who is compared. A production committer is a line here, and a `subject.Subject` of its own.

A column may have variants: a property holds for it if it holds for each of them.
"""

from __future__ import annotations

from tests.properties.flawed import Locked, SharedList
from tests.properties.in_place import Direct, Stocator
from tests.properties.renames import FileOutput
from tests.properties.subject import Subject
from tests.properties.trees import manifest, v1, v2
from tests.properties.uploads import Directory, Magic, Partitioned

OURS: dict[str, tuple[Subject, ...]] = {
    "magic": (Magic("magic, by results"), Magic("magic, by listing", "s3", "listing")),
    "directory": (Directory("directory", accept="listing"),),
    "partitioned": (Partitioned("partitioned"),),
    "manifest": (manifest("manifest, by listing, in a directory", "listing", "d"),),
    "v1 on files": (v1("v1, by results"),),
    "v2 on files": (v2("v2, by results"),),
}
"""The library's committers: of uploads on a store, of renames on a file tree."""

COMPLETE = ("magic", "directory", "partitioned", "manifest")
"""Those of them that keep every property but one."""

FOILS: dict[str, tuple[Subject, ...]] = {
    "v1 on S3": (FileOutput("v1 on S3", 1),),
    "v2 on S3": (FileOutput("v2 on S3", 2),),
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
