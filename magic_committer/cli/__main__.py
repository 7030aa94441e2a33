"""``python -m magic_committer.cli`` is ``magic-committer``."""

from magic_committer.cli.main import main

main()
