"""Bar charts as SVG, by a few lines of our own: one bar for each row, the spread as a thin line.

A chart brings its background along, and another set of colours for dark screens: it can be read
wherever it is shown. Its text is never wider than the room that is kept for it.
"""

from __future__ import annotations

from html import escape

from benchmarks.report import number
from benchmarks.results import Result

WIDTH = 720
ROW = 26
TOP = 64
BOTTOM = 16
SIDE = 16
LETTER = 7.3
"""Pixels that a letter of 13 pixels takes at most, on average, in common sans-serif fonts."""
STYLE = """
  .ground { fill: #ffffff; stroke: #d0d7de; }
  text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
         fill: #1f2328; }
  .title { font-weight: 600; font-size: 15px; }
  .hint { fill: #59636e; font-size: 12px; }
  .ours { fill: #3f51b5; }
  .peer { fill: #9aa4b2; }
  .spread { stroke: #1f2328; stroke-width: 1.5; }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #1e2129; stroke: #3d444d; }
    text { fill: #e6e9ee; }
    .hint { fill: #a5adb8; }
    .ours { fill: #8c9eff; }
    .peer { fill: #5c6675; }
    .spread { stroke: #e6e9ee; }
  }
"""


def chart(one: Result) -> str:
    """The chart of a measurement."""
    rows = one["rows"]
    labels = max(len(row["name"]) for row in rows) * LETTER + SIDE
    values = max(len(number(row["figure"])) for row in rows) * LETTER + 8
    room = WIDTH - SIDE - labels - 10 - values - SIDE
    most = max(row["most"] for row in rows) or 1.0
    better = "more is better" if one["more_is_better"] else "less is better"
    height = TOP + ROW * len(rows) + BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}"'
        f' height="{height}" role="img" aria-label="{escape(one["title"])}">',
        f"<style>{STYLE}</style>",
        f'<rect class="ground" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="6"/>',
        f'<text class="title" x="{SIDE}" y="28">{escape(one["title"])}</text>',
        f'<text class="hint" x="{SIDE}" y="48">{escape(one["unit"])}, {better};'
        " the thin line is the spread of the rounds</text>",
    ]
    for at, row in enumerate(rows):
        parts += _bar(row, TOP + ROW * at, SIDE + labels, room / most)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _bar(row: Result, top: float, left: float, pixels: float) -> list[str]:
    kind = "ours" if "magic" in row["name"] else "peer"
    middle = top + ROW / 2
    end = left + max(1.0, row["figure"] * pixels)
    least, most = left + row["least"] * pixels, left + row["most"] * pixels
    return [
        f'<text x="{left - 8:.1f}" y="{middle + 4.5:.1f}" text-anchor="end">'
        f"{escape(row['name'])}</text>",
        f'<rect class="{kind}" x="{left:.1f}" y="{top + 4:.1f}" width="{end - left:.1f}"'
        f' height="{ROW - 8}" rx="2"/>',
        f'<line class="spread" x1="{least:.1f}" x2="{most:.1f}" y1="{middle:.1f}"'
        f' y2="{middle:.1f}"/>',
        f'<text x="{max(end, most) + 8:.1f}" y="{middle + 4.5:.1f}">{number(row["figure"])}</text>',
    ]
