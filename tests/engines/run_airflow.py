"""One run of the recipe's DAG by Airflow's ``dag.test()``, in a process of its own:

    python -m tests.engines.run_airflow lost | fails

``lost``: the first answer of every step is lost, when its effects are there. ``fails``: one part
can never be written. Prints a line of JSON: the state of the run, and the calls of each step.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
STEPS = ("start", "write_part", "commit", "abort")


def main(how: str) -> None:
    """Break the steps, and run the DAG."""
    sys.path.insert(0, str(ROOT / "examples" / "recipes"))
    airflow_steps = import_module("airflow_steps")

    calls: Counter[str] = Counter()

    def broken(name: str) -> Callable[..., Any]:
        step = getattr(airflow_steps, name)

        def call(*given: Any) -> Any:
            answer = step(*given)
            what = f"{name} {given[1]}" if name == "write_part" else name
            calls[what] += 1
            if how == "lost" and calls[what] == 1:
                raise OSError("the answer is lost")
            if how == "fails" and what == "write_part 2026-11-22":
                raise OSError("this part can never be written")
            return answer

        return call

    for name in STEPS:
        setattr(airflow_steps, name, broken(name))
    airflow_dag = import_module("airflow_dag")

    dag = airflow_dag.sales()
    for operator in dag.tasks:  # else Airflow waits for five minutes before it tries again
        if operator.is_mapped:
            operator.partial_kwargs["retry_delay"] = timedelta(0)
        else:
            operator.retry_delay = timedelta(0)
    run = dag.test()
    print("\n" + json.dumps({"state": str(run.state.value), "calls": calls}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
