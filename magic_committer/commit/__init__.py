"""Committing a job of uploads: the record, the checks, the plan, the decision, and what follows.

Read in this order. `records`: the compare-and-swap on which everything rests. `job_commit`: the one
driver, which decides, and moves the record. `prepare`, `load` and `check`: what the tasks left, and
whether it may be committed. `publish`, with `complete` and `success_marker`: what a decided job
does to the data. `revert`: the way back. `sweep`: leave nothing behind. `setup` starts
a job; `fence` and `pendingset` are a task's half. No module here knows which committer made the
uploads: a `.pending` is all that they share.
"""
