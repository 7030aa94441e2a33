"""Mutants written by hand: what a file tree promises, and what a task manifest may name."""

from __future__ import annotations

from tests.mutants.handwork import Hand

LOCAL, MANIFEST = "file_trees/local.py", "committers/manifest/task_manifest.py"
PLAN = "committers/manifest/plan.py"
UNDO, PARTS = "committers/manifest/undo.py", "committers/manifest/parts.py"
GATHER, RECORDS = "committers/manifest/gather.py", "committers/manifest/records.py"
ATTEMPT, FILES = "committers/manifest/attempt.py", "committers/manifest/files.py"
DIALECTS, FSSPEC = "file_trees/dialects.py", "file_trees/through_fsspec.py"
BY_URL, SESSIONS = "file_trees/by_url.py", "file_trees/sftp_sessions.py"
BASE, RENAMING = "file_trees/base.py", "file_trees/renaming.py"
_ERRORS = "except (NotFound, PreconditionFailed, Unanswered):"

TREES = (
    Hand(
        "trees: a create that is not exclusive", LOCAL, "LocalTree.create",
        (("os.link(beside, target)", "os.rename(beside, target)"),),
        "I2: two drivers both decide one job",
    ),
    Hand(
        "trees: a rename replaces what it may not", LOCAL, "LocalTree.rename",
        (("replace or os.path.isdir(old)", "True"),),
        "I6: a file of a neighbour is overwritten in mode fail",
    ),
    Hand(
        "trees: half a rename without replace", LOCAL, "LocalTree.rename",
        (("not os.path.samestat(os.lstat(old), os.lstat(new))", "True"),),
        "a rename that died between its two steps never goes on",
    ),
    Hand(
        "trees: a path leads out", BASE, "check_path",
        (("'..' in elements", "False"),),
        "a name of a job reads or writes outside of its destination",
    ),
    Hand(
        "trees: a rename's NotFound is believed", RENAMING, "rename_once",
        ((_ERRORS, "except (PreconditionFailed, Unanswered):"),),
        "I5: a file that was renamed is told as lost, and its job never ends",
    ),
    Hand(
        "trees: a rename's lost answer is believed", RENAMING, "rename_once",
        ((_ERRORS, "except (NotFound, PreconditionFailed):"),),
        "a rename that took effect is told as open",
    ),
    Hand(
        "trees: the target is looked at first", RENAMING, "rename_once",
        (
            ("tree.stat(source) is not None", "(seen := [*map(tree.stat, (target, source))])[1]"),
            ("is_file(tree.stat(target), size, etag)", "is_file(seen[0], size, etag)"),
        ),
        "a file that another process renames between the two looks is told as lost",
    ),
    Hand(
        "trees: any file at the target is ours", RENAMING, "is_file",
        (("entry.etag == etag", "True"),),
        "I1: a lost file is reported as published, because an older one of its size is there",
    ),
    Hand(
        "trees: any size at the target is ours", RENAMING, "is_file",
        (("entry.size != size", "False"),),
        "I1: a lost file is reported as published where the tree has no etags",
    ),
    Hand(
        "trees: HDFS replaces what it may not", DIALECTS, "HdfsDialect.claim",
        (("fs.client.rename(source, target, False)", "fs.client.rename(source, target, True)"),),
        "I2: two drivers both decide one job",
    ),
    Hand(
        "trees: HDFS brings a directory back", DIALECTS, "HdfsDialect.writer",
        (("options(overwrite=False, create_parent=False)",
          "options(overwrite=False, create_parent=True)"),),
        "I3: a paused driver makes the record of a job that was deleted",
    ),
    Hand(
        "trees: HDFS tells no directory that was filled", DIALECTS, "HdfsDialect.remove_empty",
        (("'PathIsNotEmptyDirectoryException' not in str(error)", "True"),),
        "a sweep fails at a directory that a neighbour has just filled",
    ),
    Hand(
        "trees: whoever took a protocol over is believed", BY_URL, "_class_of",
        (("getattr(import_module(module), name)",
          "__import__('fsspec').get_filesystem_class(dialect.driver.split('.')[-1].split(':')[0])"),),
        "another driver of the same protocol renames by rules that nobody read",
    ),
    Hand(
        "trees: SFTP's posix-rename claims", DIALECTS, "SftpDialect.claim",
        (("fs.ftp.rename(source, target)", "fs.mv(source, target)"),),
        "I2: two drivers both decide one job",
    ),
    Hand(
        "trees: SFTP creates by a rename", DIALECTS, "SftpDialect.create",
        (("_link(fs, beside, path)", "fs.ftp.rename(beside, path)"),),
        "I2: on a disk without links two drivers both decide one job",
    ),
    Hand(
        "trees: SFTP threads take each other's answers", SESSIONS, "_Session.told",
        (("self._lock", "threading.RLock()"),),
        "two threads of a commit wait for ever",
    ),
    Hand(
        "trees: SFTP keeps a session that lost its place", SESSIONS, "_Session.told",
        (("isinstance(error, TimeoutError)", "False"),),
        "the answer to one request is taken for that to another",
    ),
    Hand(
        "trees: SFTP does not connect again", SESSIONS, "SftpSessions._session",
        (("not self._fs.client.get_transport().is_active()", "False"),),
        "a job is lost with its connection",
    ),
    Hand(
        "trees: GCS tells no missing right", DIALECTS, "GoogleDialect.told",
        (("error.errno is None", "False"),),
        "a missing right is tried again and told as unknown",
    ),
    Hand(
        "trees: GCS creates without a condition", DIALECTS, "GoogleDialect.create",
        (("'create'", "'overwrite'"),),
        "I2: two drivers both decide one job",
    ),
    Hand(
        "trees: memory creates over a file", DIALECTS, "MemoryDialect.create",
        (("fs.pipe_file(path, data, mode='create')", "fs.pipe_file(path, data)"),),
        "I2: two drivers both decide one job",
    ),
    Hand(
        "trees: a failed rename is not looked into", DIALECTS, "_told_why",
        (("dialect.info(fs, source)", "pass"),),
        "a rename whose source is gone is told as a file at its target",
    ),
    Hand(
        "trees: exclusive creation is believed", FSSPEC, "FsspecTree.make_root",
        (("self.create(probe, b'2')", "return"),),
        "a job is decided on a file system that lets two drivers decide it",
    ),
    Hand(
        "manifest: an interrupted write goes on", FILES, "TreeFile._send",
        (("self._fail(error)", "pass"),),
        "bytes are written twice after Ctrl-C",
    ),
    Hand(
        "trees: a URL is cut", "stores/urls.py", "local_path",
        (("set(url) & _ENCODED_ONLY", "False"),),
        "a job writes to another directory than it was told",
    ),
    Hand(
        "trees: a FIFO is read", LOCAL, "LocalTree.reader",
        (("modes.S_ISREG(os.fstat(descriptor).st_mode)", "True"),),
        "what another program has made is taken for a file",
    ),
)  # fmt: skip
"""The rules, each taken away."""
