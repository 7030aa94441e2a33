"""Write programs into the pages that show them: `python -m tools.snippets`.

A page names a file in a comment, ``<!-- file: examples/recipes/first.py -->``, before a block of
code. The block holds the file's text, so that a forge shows it, too. A test holds the two equal.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHOWN = re.compile(r"^<!-- file: (\S+) -->\n```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def written(page: str) -> str:
    """Return a page's text with the present text of each file that it shows."""
    return SHOWN.sub(_block, page)


def _block(found: re.Match[str]) -> str:
    name, language = found[1], found[2]
    text = (ROOT / name).read_text(encoding="utf-8")
    return f"<!-- file: {name} -->\n```{language}\n{text}```"


def main() -> None:
    """Write all pages of docs/."""
    for page in sorted((ROOT / "docs").rglob("*.md")):
        page.write_text(written(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
