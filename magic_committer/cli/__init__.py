"""The command `magic-committer`: what is pending under a path, whose it is, and what to do.

It prints and asks; what is found out and done is `magic_committer.maintenance`'s work, so that
programs can have it without a terminal. Manners that hold for every command:

* Results go to stdout, in one of four formats; everything else (progress, notes, errors) to stderr.
* Nothing is changed without being asked for: what aborts or deletes asks first, or wants ``--yes``.
* An error is one sentence and what to do, with an exit code that says of which kind it is
  (`magic_committer.cli.exits`). A traceback is shown with ``--debug`` only. No secret is printed.
* What comes from a store is printed as text, never obeyed: no control character reaches a terminal.

One module for each group of commands; each adds itself to `magic_committer.cli.app.root`
when it is loaded, which is when it is called.
"""
