"""The only import of pycurl, which is optional; and what this machine sends requests by, in words.

It loads nothing else, so that ``magic-committer --version`` can say it at once.
"""

from __future__ import annotations

import re
from typing import Any

VERSION_MIN = (7, 46)
"""The first release that can send safely: `PREREQFUNCTION` came with 7.45.7 and libcurl 7.80, and
bodies that are no ``bytes`` with 7.46. Older ones are still around, as packages of Linux
distributions."""
NOT_INSTALLED = "pycurl is not installed (pip install 'magic-committer[fast]')"

_VERSION = re.compile(r"PycURL/\"?(\d+)\.(\d+)")


def too_old(module: Any) -> str:
    """Why a pycurl cannot be used, in one phrase; "" if it can. Pure."""
    said = str(module.version)
    found = _VERSION.match(said)
    if found and (int(found[1]), int(found[2])) < VERSION_MIN:
        least = ".".join(map(str, VERSION_MIN))
        return (
            f"{' '.join(said.split()[:2])} is older than {least}"
            " (pip install -U 'magic-committer[fast]')"
        )
    if not hasattr(module, "PREREQFUNCTION"):
        return f"{' '.join(said.split()[:2])} has a libcurl older than 7.80"
    return ""


def _load() -> tuple[Any, str]:
    try:
        import pycurl
    except ImportError:  # the extra `fast` is not installed, or has no build for this platform
        return None, NOT_INSTALLED
    why = too_old(pycurl)
    return (None, why) if why else (pycurl, "")


pycurl, _why_not = _load()


def available() -> bool:
    """Whether pycurl is installed, and new enough."""
    return pycurl is not None


def why_not() -> str:
    """Why it is not available, in one phrase."""
    return _why_not or NOT_INSTALLED


def version() -> str:
    """The names and versions of pycurl and libcurl."""
    return " ".join(str(pycurl.version).split()[:2])


def sends_by() -> str:
    """What sends requests to S3 on this machine where nothing else is said, in one phrase."""
    return version() if available() else f"boto3: {why_not()}"
