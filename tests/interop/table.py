"""The requests of one job, Hadoop's beside ours: the table of docs/hadoop.md.

python -m tests.interop.table           measure, and write it there
"""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

import magic_committer as mc
from tests.chaos.proxy import through
from tests.interop import jvm
from tests.interop.jars import RELEASES
from tests.interop.jvm import HadoopsJob, Jvm
from tests.interop.lake import Lake
from tests.interop.wire import VERBS, Sent, Wire
from tests.real_servers.kinds import versitygw
from tests.real_servers.server import environment

DOC = Path(__file__).resolve().parents[2] / "docs" / "hadoop.md"
BEGIN, END = "<!-- requests: begin -->\n", "<!-- requests: end -->\n"
TASKS, EACH = 4, 5
IN_MEMORY = {"fs_s3a_committer_magic_track_commits_in_memory_enabled": "true"}
Counts = dict[str, Counter[str]]


def counted(sent: list[Sent]) -> Counter[str]:
    """How often each request was sent."""
    return Counter(one.verb if one.verb in VERBS.values() else "others" for one in sent)


def hadoops(running: Jvm, wired: Wire, dest: str, **more: str) -> Counter[str]:
    """The requests of a job of Hadoop's, from setup to the end."""
    job = HadoopsJob(running, dest, "counted", **more)
    wired.take()
    job.setup().tasks(TASKS, EACH).commit()
    return counted(wired.take())


def ours(wired: Wire, dest: str, track: str) -> Counter[str]:
    """The requests of the same job by us; the store's conditions are known by then."""
    wired.take()
    job = mc.start(f"s3://{dest}", track=track)  # type: ignore[arg-type]
    for number in range(TASKS):
        with job.task(str(number)) as task:
            for name, content in jvm.contents(number, EACH).items():
                with task.open(name) as file:
                    file.write(content)
    job.commit()
    return counted(wired.take())


def measured(release: str, running: Jvm, wired: Wire, lake: Lake) -> Counts:
    """What a release sends, by what it keeps track with. Each in a bucket of its own, for Hadoop
    keeps one file system a bucket, with the settings that it met first."""
    found = {}
    modes: dict[str, dict[str, str]] = {f"Hadoop {release}": {}}
    if release == RELEASES[0]:
        modes[f"Hadoop {release}, in memory"] = IN_MEMORY
    for number, (name, more) in enumerate(modes.items()):
        bucket = f"counted-{release.replace('.', '-')}-{number}"
        lake.client.create_bucket(Bucket=bucket)
        hadoops(running, wired, f"{bucket}/warm", **more)
        found[name] = hadoops(running, wired, f"{bucket}/t", **more)
    return found


def ours_measured(wired: Wire, lake: Lake) -> Counts:
    """What we send."""
    lake.client.create_bucket(Bucket="counted-ours")
    ours(wired, "counted-ours/warm", "s3")
    return {
        "here": ours(wired, "counted-ours/s3", "s3"),
        "here, in memory": ours(wired, "counted-ours/memory", "memory"),
    }


def text(counts: Counts) -> str:
    rows = [
        name for name in (*VERBS.values(), "others") if any(one[name] for one in counts.values())
    ]
    lines = [
        f"| {' | '.join(['request', *counts])} |",
        f"|---{'|---:' * len(counts)}|",
        *(f"| {name} | {' | '.join(str(one[name]) for one in counts.values())} |" for name in rows),
        f"| **all** | {' | '.join(f'**{one.total()}**' for one in counts.values())} |",
    ]
    return "\n".join(lines) + "\n"


def documented() -> Counts:
    """The table as it stands in the docs."""
    found = re.search(f"{BEGIN}(.*?){END}", DOC.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    rows = [[c.strip(" *") for c in line.split("|")[1:-1]] for line in found[1].splitlines()]
    return {
        name: Counter({row[0]: int(row[at]) for row in rows[2:] if row[0] != "all"})
        for at, name in enumerate(rows[0][1:], 1)
    }


def main() -> None:
    with versitygw() as url, through(Wire(), url) as wired:
        os.environ.update(environment(wired.url))
        lake = Lake(wired.url)
        counts: Counts = {}
        for release in RELEASES:
            with jvm.running(release, wired.url) as running:
                counts |= measured(release, running, wired, lake)
        counts |= ours_measured(wired, lake)
    page = DOC.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    DOC.write_text(f"{before}{BEGIN}{text(counts)}{END}{after}", encoding="utf-8")
    print(text(counts))


if __name__ == "__main__":
    main()
