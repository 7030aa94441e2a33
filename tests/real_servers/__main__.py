"""Get real servers, and run every test on them.

    python -m tests.real_servers                every test, on all that can be had here
    python -m tests.real_servers minio ceph     on these
    python -m tests.real_servers --get          only get what CI runs on

Ceph's packages are installed only where ``MAGIC_COMMITTER_TEST_INSTALL=1`` says that the machine is
ours. What cannot be had is said, and its tests are skipped; versitygw must be had.
"""

import sys

from tests.real_servers.kinds import CHOICE

if __name__ == "__main__":
    sys.exit(CHOICE.main(sys.argv[1:]))
