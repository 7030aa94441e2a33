"""The only import of pycurl, which is optional; and what this machine sends requests by, in words.

It loads nothing else, so that ``magic-committer --version`` can say it at once.
"""

from __future__ import annotations

try:
    import pycurl as pycurl
except ImportError:  # the extra `fast` is not installed, or has no build for this platform
    pycurl = None

NOT_INSTALLED = "pycurl is not installed (pip install 'magic-committer[fast]')"


def available() -> bool:
    """Whether pycurl is installed."""
    return pycurl is not None


def version() -> str:
    """The names and versions of pycurl and libcurl."""
    return " ".join(str(pycurl.version).split()[:2])


def sends_by() -> str:
    """What sends requests to S3 on this machine where nothing else is said, in one phrase."""
    return version() if available() else f"boto3: {NOT_INSTALLED}"
