"""Get real file systems, and run every test on them.

    python -m tests.real_trees              every test, on all that can be had here
    python -m tests.real_trees sftp hdfs    on these
    python -m tests.real_trees --get        only get what CI runs on

OpenSSH's package is installed only where ``MAGIC_COMMITTER_TEST_INSTALL=1`` says that the machine
is ours. What cannot be had is said, and its tests are skipped.
"""

import sys

from tests.real_trees.kinds import CHOICE

if __name__ == "__main__":
    sys.exit(CHOICE.main(sys.argv[1:]))
