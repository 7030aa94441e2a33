"""``python -m magic_committer`` is ``magic-committer``."""

from magic_committer.cli.main import main

main()
