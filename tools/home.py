"""Where the project lives: the one address, and what is made of it when a distribution is built.

hatchling runs this file (pyproject.toml): the links of the metadata, and the README with absolute
links and picture, as it is read far from the repository. A release sets `HOME`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

HOME = "https://forge.example/magic-committer/magic-committer"
"""No such host exists: the project has no public home yet."""
LINK = re.compile(r"(!?\[[^\]]*\])\((?!https?:|#)([^)]+)\)")
"""A relative link of Markdown, or a picture."""


def described(readme: str) -> str:
    """Return the README with absolute links."""
    return LINK.sub(lambda link: f"{link[1]}({HOME}/{_way(link[1])}/main/{link[2]})", readme)


def _way(text: str) -> str:
    return "raw" if text.startswith("!") else "blob"


class Home(MetadataHookInterface):
    """Adds the description and the addresses."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add them, as pyproject.toml names them ``dynamic``."""
        text = described((Path(self.root) / "README.md").read_text(encoding="utf-8"))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = {
            "Documentation": f"{HOME}/blob/main/docs/index.md",
            "Repository": HOME,
            "Issues": f"{HOME}/issues",
            "Changelog": f"{HOME}/blob/main/CHANGELOG.md",
        }
