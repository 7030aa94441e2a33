"""Progress of long steps: a bar on stderr where that is a terminal, nothing elsewhere.

The bars' library is loaded where there is a bar: cron and pipes do not wait for it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from magic_committer._runtime import Progress, ProgressFunction, no_progress

_bars: list[Any] = []
"""The bars that are on the terminal now."""


def hide_progress() -> None:
    """Take the bars off the terminal before something else is written to it; the next step shows
    them again."""
    for bars in _bars:
        bars.stop()


@contextmanager
def shown_progress(quiet: bool) -> Iterator[ProgressFunction]:
    """A function for the library's ``progress=``; its bars go when the block ends.

    Args:
        quiet: show nothing, on a terminal too.
    """
    if quiet or not sys.stderr.isatty():
        yield no_progress
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    with Bars(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(file=sys.stderr),
        redirect_stdout=False,  # results stay on stdout
        transient=True,
    ) as bars:
        known = {}

        def tell(step: Progress) -> None:
            if step.phase not in known:
                known[step.phase] = bars.add_task(f"{step.phase} ({step.unit})", total=step.total)
            if not bars.live.is_started:
                bars.start()
            bars.update(known[step.phase], completed=step.done, total=step.total)

        _bars.append(bars)
        try:
            yield tell
        finally:
            _bars.remove(bars)
