"""Committing a job: the record, the checks, the plan, the decision, and what follows from it.

Read in this order: `records` (the compare-and-swap on which everything rests), `load` (what the
tasks left, in bounded memory), `check` and `plan` (pure: may it be committed, and what exactly),
`execute` (complete, mark), `sweep` (leave nothing behind). None of them knows how files are
written; they meet the upload only in a `.pending`.
"""
