"""Committing a job of uploads: the record, the checks, the plan, the decision, and what follows.

Read in this order. `register`: the compare-and-swap on which everything rests. `driver`: it
decides, and moves the record. `sets` and `gather`: what the tasks left, and whether it may be
committed. `publish`, with `uploads`: what a decided job does to the data. `revert`: the way back.
`sweep`: leave nothing behind. `setup` starts a job; `fence` is a task's half. `requests` sends many
at once. No module here knows which committer made the uploads: a `.pending` is all that they share.
"""
