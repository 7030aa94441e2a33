"""Mutants written by hand: what a file tree and the store over it promise."""

from __future__ import annotations

from tests.mutants.handwork import Hand

DISK, STORE = "file_trees/disk.py", "stores/tree.py"
ATTEMPT, FILES = "committers/manifest/attempt.py", "committers/manifest/files.py"
DIALECTS, FSSPEC = "file_trees/dialects.py", "file_trees/through_fsspec.py"
BY_URL, SESSIONS = "file_trees/by_url.py", "file_trees/sftp_sessions.py"
_ERRORS = "except (NotFound, PreconditionFailed, Unanswered):"

TREES = (
    Hand(
        "trees: a create that is not exclusive", STORE, "TreeStore._create",
        (("self._to_home(key, new, replace=False)", "self._to_home(key, new)"),),
        "I5: two jobs have one given id",
    ),
    Hand(
        "trees: a swap that is not exclusive", STORE, "TreeStore._follow",
        (("self._tree.rename(new, beside, replace=False)", "self._tree.rename(new, beside)"),),
        "I2: two drivers both decide one job",
    ),
    Hand(
        "trees: a swap of a record that was deleted", STORE, "TreeStore._follow",
        (("self._first_of(key) != leaves.first", "False"),),
        "I3: a paused driver decides a job whose record is gone",
    ),
    Hand(
        "trees: a record that is being deleted is there", STORE, "TreeStore._found",
        (("'gone' not in file.mark", "True"),),
        "I3: a paused driver decides a job whose record is gone",
    ),
    Hand(
        "trees: an old first version goes for a new one", STORE, "TreeStore._remove",
        (("first == newest.first", "True"),),
        "I5: the record of a job that has just started goes with an older one of its id",
    ),
    Hand(
        "trees: a sync that failed is forgotten", STORE, "TreeStore._settle",
        (("raise error", "pass"),),
        "a power cut after the decision takes what no sync could write",
    ),
    Hand(
        "trees: the name of a put may not last", STORE, "TreeStore._visible",
        (("self._settle()", "pass"),),
        "a power cut after the decision takes the decision",
    ),
    Hand(
        "trees: a rename replaces what it may not", DISK, "LocalTree.rename",
        (("not replace", "False"),),
        "I6: a file of a neighbour is overwritten in mode fail",
    ),
    Hand(
        "trees: half a rename without replace", DISK, "move",
        (("not os.path.samestat(os.lstat(source), os.lstat(target))", "True"),),
        "a rename that died between its two steps never goes on",
    ),
    Hand(
        "trees: half a rename is an open upload", STORE, "TreeStore._is_visible",
        (("there is None or there.etag != seen.etag", "True"),),
        "I3: an abort of what is visible already, and a Complete of it, are told as done",
    ),
    Hand(
        "trees: a path leads out", STORE, "TreeStore._path",
        (("'..' in elements", "False"),),
        "a name of a job reads or writes outside of its destination",
    ),
    Hand(
        "trees: a rename's NotFound is believed", ATTEMPT, "TreeAttempt._move",
        ((_ERRORS, "except (PreconditionFailed, Unanswered):"),),
        "a task that renames its file fails though it is renamed",
    ),
    Hand(
        "trees: any file at the target is ours", ATTEMPT, "TreeAttempt._move",
        (("(there.size, there.etag) != (seen.size, seen.etag)", "False"),),
        "a task's file that somebody took is told as renamed: an older one is published for it",
    ),
    Hand(
        "trees: any size at the target is ours", "commit/upload_state.py", "became",
        (("upload.multipart_etag == f'{SIZE_ONLY}{info.size}'", "True"),),
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
        (("_told_why(self, fs, source, target, lambda: _link(fs, source, target))",
          "fs.mv(source, target)"),),
        "I2: two drivers both decide one job",
    ),
    Hand(
        "trees: SFTP creates by a rename", DIALECTS, "SftpDialect.claim",
        (("_link(fs, source, target)", "fs.ftp.rename(source, target)"),),
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
        "trees: GCS creates without a condition", DIALECTS, "GoogleDialect.claim",
        (("self._move(fs, source, target, ifGenerationMatch='0')",
          "self._move(fs, source, target)"),),
        "I2: two drivers both decide one job",
    ),
    Hand(
        "trees: memory creates over a file", DIALECTS, "MemoryDialect.claim",
        (("fs.exists(target)", "False"),),
        "I2: two drivers both decide one job",
    ),
    Hand(
        "trees: a failed rename is not looked into", DIALECTS, "_told_why",
        (("dialect.info(fs, source)", "pass"),),
        "a rename whose source is gone is told as a file at its target",
    ),
    Hand(
        "trees: exclusive creation is believed", FSSPEC, "FsspecTree.make_root",
        (("self.rename(names[1], names[2], replace=False)", "return"),),
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
        "trees: a FIFO is read", DISK, "LocalTree.reader",
        (("modes.S_ISREG(os.fstat(descriptor).st_mode)", "True"),),
        "what another program has made is taken for a file",
    ),
)  # fmt: skip
"""The rules, each taken away."""
