"""The page's pictures: inline SVG. Places along the width are percentages, so that a picture is as
wide as its page while its text stays as large as the page's; heights are pixels.

Each has a title and a description that says the same in words.
"""

from __future__ import annotations

from collections.abc import Sequence

from magic_committer.cli.markup import Html, tag
from magic_committer.cli.quantities import age_words, bytes_words
from magic_committer.cli.tally import AGES, CLASSES, Tally
from magic_committer.cli.timeline import Span

BARS_PX = 150
"""Height of the tallest column."""
TOP_PX = 40
BOTTOM_PX = 26
ROW_PX = 44
"""Of a timeline: words above, bar below."""
AXIS_PX = 24
TICKS = 4
"""A timeline's axis has so many parts."""


def ages(tally: Tally) -> Html:
    """Uploads by age, a column for each bucket, stacked by class."""
    columns = [(name, tally.by_age(name)) for name in AGES]
    tallest = max(held.uploads for _, held in columns) or 1
    step = 100 / len(columns)
    floor = TOP_PX + BARS_PX
    shapes: list[Html] = []
    for index, (name, held) in enumerate(columns):
        middle = _percent((index + 0.5) * step)
        top = float(floor)
        for key, one in CLASSES.items():
            count = tally.of(key, name).uploads
            if not count:
                continue
            height = max(count / tallest * BARS_PX, 2.0)
            top -= height
            shapes.append(
                tag(
                    "rect",
                    tag("title", f"{one.title}, {name}: {count:,}"),
                    x=_percent((index + 0.18) * step), y=f"{top:.1f}",
                    width=_percent(0.64 * step), height=f"{height:.1f}", class_=f"bar {key}",
                )
            )  # fmt: skip
        shapes.append(_text(middle, floor + 18, name, "middle", "label"))
        if held.uploads:
            shapes.append(_text(middle, top - 20, f"{held.uploads:,}", "middle", "value"))
            shapes.append(_text(middle, top - 6, bytes_words(held.bytes), "middle", "small"))
    shapes.append(tag("line", x1="0", x2="100%", y1=floor, y2=floor, class_="axis"))
    told = "; ".join(f"{name}: {held.uploads:,}" for name, held in columns if held.uploads)
    return tag(
        "figure",
        _picture("ages", "Open uploads by age", told, floor + BOTTOM_PX, shapes),
        tag("figcaption", _legend(tally), "Uploads by age; below each count what they hold."),
    )


def _legend(tally: Tally) -> Html:
    items = [
        tag("li", tag("span", class_=f"swatch {key}", aria_hidden="true"), one.title)
        for key, one in CLASSES.items()
        if tally.by_class(key).uploads
    ]
    return tag("ul", *items, class_="legend")


def timeline(name: str, title: str, spans: Sequence[Span]) -> Html:
    """What took from when to when, a row for each, on one axis that starts with the first."""
    start = min(span.started for span in spans)
    whole = max(max(span.ended, span.started) for span in spans) - start or 0.001
    shapes: list[Html] = []
    bottom = ROW_PX * len(spans)
    for tick in range(TICKS + 1):
        at = _percent(tick / TICKS * 100)
        side = {0: "start", TICKS: "end"}.get(tick, "middle")
        shapes.append(tag("line", x1=at, x2=at, y1=0, y2=bottom + 4, class_="grid"))
        words = f"+{seconds_words(whole * tick / TICKS)}" if tick else "0"
        shapes.append(_text(at, bottom + 18, words, side, "small"))
    for row, span in enumerate(spans):
        top = row * ROW_PX
        began = span.started - start
        took = f"{seconds_words(span.seconds)}, from {f'+{seconds_words(began)}' if began else '0'}"
        left, width = began / whole * 100, span.seconds / whole * 100
        shapes += [
            _text("0", top + 18, span.name, "start", "label"),
            _text("100%", top + 18, took, "end", "small"),
            tag("rect", x="0", y=top + 25, width="100%", height=12, class_="track"),
            tag("rect", tag("title", f"{span.name}: {took}"), x=_percent(left), y=top + 25,
                width=_percent(width), height=12, class_="span"),
        ]  # fmt: skip
    told = "; ".join(
        f"{span.name} took {seconds_words(span.seconds)}"
        f" and began {seconds_words(span.started - start)} after the start"
        for span in spans
    )
    return tag("figure", _picture(f"timeline-{name}", title, told, bottom + AXIS_PX, shapes))


def seconds_words(seconds: float) -> str:
    """A duration, also a short one: ``"12 ms"``, ``"3.2 s"``, ``"1.5 min"``."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else age_words(seconds)


def _picture(name: str, title: str, told: str, height: int, shapes: Sequence[Html]) -> Html:
    return tag(
        "svg",
        tag("title", title, id=f"{name}-title"),
        tag("desc", told, id=f"{name}-told"),
        *shapes,
        width="100%", height=height, role="img",
        aria_labelledby=f"{name}-title", aria_describedby=f"{name}-told",
    )  # fmt: skip


def _text(x: str, y: float, words: str, anchor: str, kind: str) -> Html:
    return tag("text", words, x=x, y=f"{y:.1f}", text_anchor=anchor, class_=kind)


def _percent(value: float) -> str:
    return f"{value:.3f}%"
