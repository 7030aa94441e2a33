"""What ending a job came to: its report, for people and for programs, and the exit code."""

from __future__ import annotations

from collections.abc import Iterator

from magic_committer._quantities import counted
from magic_committer.cli import exits
from magic_committer.cli.quantities import pending_words
from magic_committer.cli.shell import Shell
from magic_committer.maintenance.reports import Recovery
from magic_committer.protocol.record import JobReport, State


def told(shell: Shell, report: JobReport) -> int:
    """Print what became of a job; the exit code."""
    shell.output.document("job.report", report.to_dict(), _report_lines(report))
    return _code(report)


def _code(report: JobReport | None) -> int:
    """Whether something of the job is left: its uploads, or its record."""
    if report is None:
        return exits.OK
    ended = report.state in (State.ABSENT, State.CLOSED)
    return exits.OK if ended and not report.left_open else exits.BAD_STATE


def _report_lines(report: JobReport) -> Iterator[tuple[str, str]]:
    yield "job", report.job_id
    yield "outcome", report.outcome
    yield "record", report.state
    if report.transport:
        yield "requests by", report.transport
    if report.tasks or report.files:
        yield "published", pending_words(report.tasks, report.files, report.bytes)
    for warning in report.warnings:
        yield "warning", warning
    for upload in report.left_open:
        yield "left open", upload
    if report.unattributed:
        uploads = counted(report.unattributed, "open upload")
        yield "unattributed", f"{uploads} under the destination: their names tell no job"


def told_recovery(shell: Shell, recovery: Recovery) -> int:
    """Print what a recovery found and did; the exit code."""
    lines: list[tuple[str, str]] = [
        ("job", recovery.job_id),
        ("found", recovery.found),
        ("would" if recovery.dry_run else "did", recovery.did),
        ("record", recovery.state),
        ("outcome", recovery.outcome or "not known"),
        *(("unresolved", key) for key in recovery.unresolved),
    ]
    if recovery.report is not None:
        lines += [line for line in _report_lines(recovery.report) if line not in lines]
    shell.output.document("job.recovery", recovery.to_dict(), lines)
    return _code(recovery.report)
