"""Survivors that stay: why nothing can, or need, kill them. By id, with the reason."""

from __future__ import annotations

EXPLAINED: dict[str, str] = {}
