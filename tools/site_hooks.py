"""What the documentation site needs beyond mkdocs.yml: MkDocs calls these functions.

* Pages that stand at the repository's root (CHANGELOG.md and others) become pages of the site.
* A link works on the forge and on the site: one that leaves ``docs/`` leads to the page that the
  file became; a file that is no page is named in words.
* Headings get the anchors that a forge gives them, so that a link to one works in both places.
* The picture of the job's states stands in for the diagram that a forge draws by itself: a script
  for that would have to come from elsewhere.
"""

from __future__ import annotations

import os
import posixpath
import re
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

ROOT_PAGES = {
    "project/architecture.md": "ARCHITECTURE.md",
    "project/changelog.md": "CHANGELOG.md",
    "project/contributing.md": "CONTRIBUTING.md",
    "project/examples.md": "examples/README.md",
    "project/tests.md": "tests/README.md",
}
"""A page of the site, and the file at the repository's root that it is made of."""

LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
FENCE = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
DIAGRAM = re.compile(r"^```mermaid\nstateDiagram-v2\n.*?^```$", re.MULTILINE | re.DOTALL)
DIAGRAM_PICTURE = "assets/job-states.svg"


def on_config(config: Any) -> Any:
    """Anchors as a forge makes them. Here, as it takes a function and mkdocs.yml stays plain."""
    from pymdownx.slugs import slugify

    config.mdx_configs.setdefault("toc", {})["slugify"] = partial(_anchor, slugify(case="lower"))
    return config


def _anchor(slug: Any, text: str, separator: str) -> str:
    made: str = slug(text, separator)
    return made


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of the repository's root."""
    from mkdocs.structure.files import File

    for page, source in ROOT_PAGES.items():
        content = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Make a file's links those of its page."""
    src = page.file.src_uri
    if DIAGRAM.search(markdown):
        picture = posixpath.relpath(DIAGRAM_PICTURE, posixpath.dirname(src) or ".")
        markdown = DIAGRAM.sub(
            f"![The states of a job's record]({picture}){{ .diagram }}", markdown, count=1
        )
    return relink(markdown, src)


def relink(markdown: str, src: str) -> str:
    """A page's text with links that work on the site.

    Args:
        markdown: its text, as it stands in the repository.
        src: the page's path, below ``docs/``; or one of ``ROOT_PAGES``.
    """
    parts = FENCE.split(markdown)
    for i in range(0, len(parts), 2):
        parts[i] = LINK.sub(lambda found: _relinked(found, src), parts[i])
    return "".join(parts)


def _relinked(found: re.Match[str], src: str) -> str:
    target = found["target"]
    if re.match(r"[a-z]+:", target) or target.startswith("#"):
        return found[0]
    path, mark, heading = target.partition("#")
    stored = ROOT_PAGES.get(src, f"docs/{src}")
    reached = posixpath.normpath(posixpath.join(posixpath.dirname(stored), path))
    page = page_of(reached)
    if page is None:
        said = found["text"].strip("`")
        if said == reached or reached.endswith(f"/{said.rstrip('/')}"):
            return f"`{reached}`"
        return f"{found['text']} (`{reached}` in the repository)"
    way = posixpath.relpath(page, posixpath.dirname(src) or ".")
    return f"{found['picture']}[{found['text']}]({way}{mark}{heading})"


def page_of(stored: str) -> str | None:
    """The site's path of a file of the repository; None if it is not on the site."""
    for page, source in ROOT_PAGES.items():
        if stored == source:
            return page
    if stored == "README.md":
        return "index.md"
    if stored == "SECURITY.md":
        return "security.md"
    below = stored.removeprefix("docs/")
    return below if below != stored and os.path.isfile(ROOT / stored) else None
