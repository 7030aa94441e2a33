"""Recipes for Prefect, Dagster, Kedro and dlt, which `make apart ONLY=recipes` installs: two steps
with JSON between them, and the first answer of a step may be lost."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.testing import MemoryStore
from tests.nightly import library
from tests.promises.hands import At

TABLE = "s3://bucket/sales"
PART = ["day=2026-11-21/sales.csv"]
pytestmark = pytest.mark.filterwarnings("default")  # theirs


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ModuleType]]:
    """Import a recipe as its users do, beside the steps; what its steps give is JSON."""
    folder = Path(__file__).resolve().parents[2] / "examples" / "recipes"
    monkeypatch.syspath_prepend(str(folder))
    before = set(sys.modules)

    def imported(name: str, *, lost: bool = False) -> ModuleType:
        library(name)
        steps = import_module("airflow_steps")
        for step in ("start", "write_part", "commit"):
            monkeypatch.setattr(steps, step, answering(getattr(steps, step), lost))
        return import_module(f"with_{name}")

    yield imported
    for name in {"airflow_steps", *(name for name in sys.modules if name.startswith("with_"))}:
        if name not in before:
            sys.modules.pop(name, None)


def answering(step: Callable[..., Any], lost: bool) -> Callable[..., Any]:
    """A step whose answer goes through JSON; ``lost``: not the first one."""
    calls: list[object] = []

    def call(*given: Any, **named: Any) -> Any:
        answer = json.loads(json.dumps(step(*given, **named)))
        calls.append(answer)
        if lost and len(calls) == 1:
            raise OSError("the answer is lost")
        return answer

    call.__name__ = step.__name__
    return call


def data(store: MemoryStore) -> list[str]:
    """What readers see, without the job's UUID."""
    assert store.open_uploads() == ()
    keys = (key.removeprefix("sales/") for key in store.keys("sales/"))
    return [re.sub(r"-mcj[0-9a-f]{32}", "", key) for key in keys if not key.startswith("_")]


def prefect(recipe: ModuleType) -> object:
    """A flow in its own server."""
    harness = import_module("prefect.testing.utilities").prefect_test_harness
    with harness(server_startup_timeout=240):
        return recipe.sales(TABLE, "run 1")


def dagster(recipe: ModuleType) -> object:
    """A run in this process."""
    run = recipe.sales.execute_in_process()
    assert run.success
    return run.output_for_node("publish")


def kedro(recipe: ModuleType) -> object:
    """A pipeline by Kedro's own runner; what travels is what a JSONDataset keeps."""
    io, runner = import_module("kedro.io"), import_module("kedro.runner")
    given = {"params:dest": TABLE, "params:run_id": "run 1"}
    catalog = io.DataCatalog({name: io.MemoryDataset(value) for name, value in given.items()})
    return runner.SequentialRunner().run(recipe.sales, catalog)["files"].load()


@pytest.mark.parametrize(
    ("runs", "lost"), [(prefect, False), (prefect, True), (dagster, False), (dagster, True),
                       (kedro, False)],
)  # fmt: skip
def test_each_step_is_tried_again(
    memory_s3: MemoryStore, recipe: Callable[..., ModuleType],
    runs: Callable[[ModuleType], object], lost: bool,
) -> None:  # fmt: skip
    """The part is there once, whether the first answer of each step is lost or not."""
    files = runs(recipe(runs.__name__, lost=lost))
    assert files == (0 if lost else 1)  # a job that is committed again has nothing to complete
    assert data(memory_s3) == PART


@pytest.mark.parametrize("lost", [False, True])
def test_dlt(
    memory_s3: MemoryStore, recipe: Callable[..., ModuleType], tmp_path: Path, lost: bool
) -> None:
    """A load in files; one whose answer is lost is loaded again, and its rows are there once."""
    recipe_of_dlt, dlt = recipe("dlt"), import_module("dlt")
    job = json.loads(json.dumps(mc.start(TABLE, job_id="load-1").to_dict()))
    if lost:
        At(memory_s3, "create_upload", mc.errors.PermissionDenied("no"))

    def pipeline() -> Any:
        destination = recipe_of_dlt.magic(job)
        return dlt.pipeline("sales", destination=destination, pipelines_dir=str(tmp_path))

    rows = [{"n": n} for n in range(100)]
    try:
        pipeline().run(rows, table_name="sold")
    except Exception:
        if not lost:
            raise
        pipeline().run()  # what is left of the load
    assert not [key for key in memory_s3.keys("sales/") if not key.startswith("sales/_")]
    recipe_of_dlt.publish(job)
    assert len([key for key in data(memory_s3) if key.startswith("sold/")]) == 1
