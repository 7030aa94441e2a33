"""A page's data with everything that is hard to show: hostile names, long keys, all classes."""

from __future__ import annotations

from magic_committer.cli.report import CLASSES, ReportData
from magic_committer.maintenance.reports import FoundJob
from magic_committer.maintenance.uploads import FoundUpload, Sums

HOUR = 3600.0
DAY = 24 * HOUR
NOW = 1_795_264_200.0
HOSTILE = (
    "<script>alert(1)</script>",
    "\"quoted\" & 'quoted' <img src=x onerror=alert(1)>",
    "right-to-left \u202egnp.exe and \x1b[31mred\x07",
    "</style></title><style>*{display:none}</style>",
    f"a key of a thousand characters/{'x' * 969}",
)
"""Names that a page must show as they are, with what is invisible written out."""


def uploads() -> list[FoundUpload]:
    """Uploads of every class and age."""
    made = [
        FoundUpload(
            f"warehouse/events/dt=2026-11-{n + 1:02}/part-{n:05}-{name}.snappy.parquet",
            f"2~{name}{n:032x}", name, age=age, job_state="closed" if name == "over" else "running",
            bytes=None if name == "unknown" else (n + 1) * 8 * 1024**2, storage_class="STANDARD",
            job=f"2026-11-{n + 1:02}" if name in ("live", "over") else "",
        )
        for name in CLASSES
        for age in (600.0, 5 * HOUR, 3 * DAY, 12 * DAY, 90 * DAY, None)
        for n in range(28)
    ]  # fmt: skip
    made += [
        FoundUpload(
            key, key[:64], "foreign", key[:40], age=90 * DAY, bytes=(900 + number) * 1024**3,
            storage_class=key[:20], near=True, note=key[:60],
        )
        for number, key in enumerate(HOSTILE)
    ]  # fmt: skip
    return made


def jobs() -> list[FoundJob]:
    """A job of each kind."""
    dest = "s3://lake/warehouse/events"
    return [
        FoundJob("2026-11-21", dest, "ours", state="running", age=240.0, files=62, bytes=2**33,
                 would="nothing yet: it may be alive, it changed 4 min ago; after 24 h abort it"),
        FoundJob("2026-11-18", dest, "ours", state="committing", outcome="committed",
                 age=3 * DAY, files=112, bytes=3 * 2**34, visible=80, missing=0,
                 would="complete 32 files of 112, mark the destination, sweep and close the job"),
        FoundJob("b7e1c3aa-5f0e-4c55-9f0a-000000000001", dest, "hadoop", age=5 * HOUR, files=37,
                 bytes=2**31, would="nothing: it is not a job of this library"),
        FoundJob(HOSTILE[0], dest, "unreadable", age=DAY, problem=f"_job.json: {HOSTILE[1]}",
                 would="nothing: it cannot be read"),
        FoundJob("2026-10-30", dest, "litter", age=22 * DAY, objects=4,
                 would="nothing: its job is over; cleanup removes what it left"),
    ]  # fmt: skip


def data() -> ReportData:
    sums, found = Sums(), uploads()
    for one in found:
        sums.add(one)
    return ReportData(
        dest="s3://lake/warehouse/events", store="https://s3.eu-central-1.amazonaws.com/lake",
        made=NOW, sums=sums, largest=found[-25:], jobs=jobs(),
        notes=("4 uploads have no age or could not be measured: the store did not tell",),
    )  # fmt: skip
