"""A notebook: `# %%` begins a cell (VS Code, PyCharm and Jupytext open the file
as a notebook)."""

# %% What is written, and where
import pandas as pd

import magic_committer as mc

DEST = "s3://bucket/experiments"
results = pd.DataFrame({"run": [1, 1, 2], "loss": [0.9, 0.4, 0.7]})

# %% Write. "Interrupt" in the middle of this cell leaves nothing; run again.
with mc.write(DEST, mode="append") as job:
    for run, rows in results.groupby("run"):
        with job.open(f"run-{run}.csv", "w", unique=True) as f:
            rows.to_csv(f, index=False)
print(job.report)

# %% Over several cells: start, write, look, and decide at the end
long_job = mc.start(DEST)

# %% One attempt of a task. Run it again for another: the last one counts.
with (
    long_job.task("plot") as task,
    task.open("curve.csv", "w", unique=True) as f,
):
    results.to_csv(f, index=False)

# %% Decide: `long_job.commit()`, or `long_job.abort()`
report = long_job.commit(expect=["plot"])
print(report.outcome, report.files)

# %% What earlier sessions left when their kernel was restarted
for found in mc.inspect(DEST):
    print(found.id, found.state, found.would)
