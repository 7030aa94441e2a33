"""The summary of a commit or abort, in a directory for operators: Hadoop's form and name
(``mapreduce.manifest.committer.summary.report.directory``, Hadoop 3.3.5 and later).

It is written also if the commit fails, and says why. It decides nothing: if it cannot be written, a
warning says so.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from magic_committer.committers.manifest.parts import Parts
from magic_committer.errors import MagicError
from magic_committer.file_trees.base import FileTree
from magic_committer.file_trees.by_url import tree_for
from magic_committer.hadoop.formats import SuccessData, encode_success, new_success
from magic_committer.protocol.record import StartedJob
from magic_committer.report import JobReport

logger = logging.getLogger("magic_committer")


def with_summary(
    parts: Parts, job: StartedJob, directory: str, end: Callable[[], JobReport]
) -> JobReport:
    """End a job, and write a summary of what became of it.

    Args:
        parts, job: the components and the job.
        directory: a path, or the URL of a file system.
        end: ends the job.
    """
    base = new_success(
        job_id=job.id,
        timestamp_ms=int(parts.clock.now() * 1000),
        hostname=socket.gethostname(),
        committer=job.terms.committer,
        description=f"magic-committer job {job.id} in {job.dest}",
        job_id_source="magic-committer",
    )
    try:
        report = end()
    except BaseException as error:
        told = getattr(error, "report", None)
        outcome = told.outcome if isinstance(told, JobReport) else ""
        diagnostics = {"exception": f"{type(error).__name__}: {error}", "outcome": outcome}
        _save(parts, directory, job, replace(base, success=False, diagnostics=diagnostics))
        raise
    committed = report.outcome == "committed"
    diagnostics = {
        "outcome": report.outcome,
        "magic-committer.files": str(report.files),
        "magic-committer.bytes": str(report.bytes),
        "magic-committer.tasks": str(report.tasks),
    }
    _save(
        parts,
        directory,
        job,
        replace(
            base,
            success=committed,
            diagnostics=diagnostics,
            filenames=report.filenames,
            iostatistics=report.statistics,
        ),
    )
    return report


def _save(parts: Parts, directory: str, job: StartedJob, summary: SuccessData) -> None:
    try:
        tree = _tree(directory)
        tree.make_root()
        spare = f"summary-{job.id}-{parts.ids()}.tmp"
        tree.create(spare, encode_success(summary))
        tree.rename(spare, f"summary-{job.id}.json")
    except MagicError as error:
        logger.warning("job %s: its summary could not be written: %s", job.id, error)


def _tree(directory: str) -> FileTree:
    url = directory if "://" in directory else Path(directory).absolute().as_uri()
    return tree_for(url)
