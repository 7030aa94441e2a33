"""The in-memory store."""

from __future__ import annotations

from magic_committer.testing import memory_s3

__all__ = ["memory_s3"]
