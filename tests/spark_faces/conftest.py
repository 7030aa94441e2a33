"""As ``tests/spark``: these tests take longer, and are no part of ``make test``."""

from __future__ import annotations

from tests.spark.conftest import environment, event_log, gate, lake, spark

__all__ = ["environment", "event_log", "gate", "lake", "spark"]
