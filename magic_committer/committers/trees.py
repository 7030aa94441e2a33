"""The committers of renames by the record of a job, for whoever ends or looks at any of their jobs.

They share the record and its place, so a job is found before its committer is known.
"""

from __future__ import annotations

from magic_committer.committers.manifest import ManifestCommitter
from magic_committer.committers.registry import named
from magic_committer.errors import OptionError
from magic_committer.protocol.record import StartedJob


def tree_committer_of(job: StartedJob) -> type[ManifestCommitter]:
    """The class of a job's committer.

    Raises:
        OptionError: this process does not have the committer, or it is none of renames.
    """
    name = job.terms.committer
    found: object = named(name)
    if isinstance(found, type) and issubclass(found, ManifestCommitter):
        return found
    raise OptionError(
        f"job {job.id!r} under {job.dest} has committer={name!r}, which is none of renames",
        hint="Use the version of the library, or the package, that started it",
    )
