"""How a command tells what became of a job: `JobReport` and `Recovery`, in lines, in JSON, and as
an exit code."""

from __future__ import annotations

from collections.abc import Iterator

from magic_committer._quantities import counted
from magic_committer.cli import exits
from magic_committer.cli.output import Prose
from magic_committer.cli.quantities import pending_words
from magic_committer.cli.shell import Shell
from magic_committer.maintenance.reports import Recovery
from magic_committer.protocol.record import JobReport, State


def tell_report(shell: Shell, report: JobReport) -> int:
    """Print it; its exit code."""
    shell.output.document("job.report", report.to_dict(), report_lines(report))
    return code_of_report(report)


def code_of_report(report: JobReport | None) -> int:
    """Whether something of the job is left: its uploads, or its record."""
    if report is None:
        return exits.OK
    ended = report.state in (State.ABSENT, State.CLOSED)
    return exits.OK if ended and not report.left_open else exits.BAD_STATE


def report_lines(report: JobReport) -> Iterator[tuple[str, str]]:
    """It for people: name and words of each line."""
    yield "job", report.job_id
    yield "outcome", report.outcome
    yield "record", report.state
    if report.transport:
        yield "requests by", report.transport
    if report.tasks or report.files:
        yield "published", pending_words(report.tasks, report.files, report.bytes)
    for warning in report.warnings:
        yield "warning", Prose(warning)
    for upload in report.left_open:
        yield "left open", upload
    if report.unattributed:
        uploads = counted(report.unattributed, "open upload")
        yield "unattributed", f"{uploads} under the destination: their names tell no job"


def tell_recovery(shell: Shell, recovery: Recovery) -> int:
    """Print what a recovery found and did; its exit code."""
    lines: list[tuple[str, str]] = [
        ("job", recovery.job_id),
        ("found", recovery.found),
        ("would" if recovery.dry_run else "did", Prose(recovery.did)),
        ("record", recovery.state),
        ("outcome", recovery.outcome or "not known"),
        *(("unresolved", key) for key in recovery.unresolved),
    ]
    if recovery.report is not None:
        lines += [line for line in report_lines(recovery.report) if line not in lines]
    shell.output.document("job.recovery", recovery.to_dict(), lines)
    return code_of_report(recovery.report)
