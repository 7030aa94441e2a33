"""HTML and SVG out of Python values. What is text is escaped, always: there is no way to forget it.

`tag` takes children and attributes. A `Html` stays as it is, everything else becomes text in which
no markup is left, and no control or format character either (`magic_committer.cli.output.clean`): a
key that holds ``<script>`` or turns the direction of writing round is shown, never obeyed.
"""

from __future__ import annotations

import html

from magic_committer.cli.output import clean

VOID = frozenset({"br", "col", "hr", "img", "input", "link", "meta"})
"""Elements without an end tag (HTML standard, "void elements")."""


class Html(str):
    """Markup: made by `tag`, by `join`, or of a file of this package."""

    __slots__ = ()


def escape(value: object) -> Html:
    """A value as text, in content or between quotes."""
    return value if isinstance(value, Html) else Html(html.escape(clean(value), quote=True))


def join(*children: object) -> Html:
    """Values one after the other; None and "" are nothing."""
    return Html("".join(escape(child) for child in children if child is not None))


def tag(name: str, /, *children: object, **attributes: object) -> Html:
    """An element.

    Args:
        name: of this program's, never of a store's.
        attributes: ``class_`` is ``class``, ``text_anchor`` is ``text-anchor``; None is nothing.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{join(*children)}</{name}>")
