"""joblib: its pool of processes (loky) runs the tasks, and a worker that is
killed is replaced."""

from __future__ import annotations

from collections.abc import Iterable

import joblib
from joblib.externals.loky import get_reusable_executor

import magic_committer as mc


def fit(task: mc.Task, seed: int) -> float:
    """Runs in a worker: trains a model, and stores it."""
    weights = [seed * 0.5] * 10
    with task.open(f"model-{seed}.joblib", unique=True) as file:
        joblib.dump({"seed": seed, "weights": weights}, file)
    return sum(weights)


def train(seeds: Iterable[int], dest: str) -> mc.RunReport[float]:
    """Store all models, or none."""
    return mc.run(
        dest, fit, seeds, executor=lambda: get_reusable_executor(max_workers=2)
    )
