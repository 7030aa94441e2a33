"""Mutants written by hand: the rules of `Task.discard` and of a task as a file system."""

from __future__ import annotations

from tests.mutants.handwork import Hand

ATTEMPT, TURNS = "committers/magic/attempt.py", "committers/magic/turns.py"
TREE = "committers/manifest/attempt.py"
RENAMED = "self._parts.tree, source, target, seen.size, seen.etag"

FILES = (
    Hand(
        "discard: a commit runs beside it", TURNS, "Turns.commit",
        (("if self._discarding:\n    raise self.busy('changed: a file is discarded')", "pass"),),
        "the commit stores an upload that is being aborted: the job can never be finished",
    ),
    Hand(
        "discard: what others may commit is aborted", ATTEMPT, "Attempt._take_out",
        (("self._saved.shared", "False"),),
        "another process has committed the upload that is aborted here",
    ),
    Hand(
        "discard: the .pending stays", ATTEMPT, "Attempt._take_out",
        (("self._tree.take_out(self._paths.pending(self.attempt, file.name))", "pass"),),
        "the task's commit lists a file whose upload is gone",
    ),
    Hand(
        "discard: a file is out only when its upload is", ATTEMPT, "Attempt._take_out",
        (("file.discarded = True", "pass"),),
        "a discarded file is published, because its abort had failed",
    ),
    Hand(
        "files: hidden ones are left out in silence", "filesystem/put.py", "local_files",
        (("left_out.append(name)", "pass"),),
        "nobody learns that a file was not put",
    ),
    Hand(
        "files: one that changes is put", "filesystem/put.py", "put_one",
        (("(total, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns)", "False"),),
        "half of the old file and half of the new one appear",
    ),
    Hand(
        "discard on a disk: beside a commit", TREE, "TreeAttempt.discard",
        (("self._turns.discard()", "self._turns.lock"),),
        "a committed task loses a file that its manifest names",
    ),
    Hand(
        "discard on a disk: the file stays", TREE, "TreeAttempt.discard",
        (("self._again(partial(self._drop, name))", "pass"),),
        "the name is not free, and the manifest names what was discarded",
    ),
    Hand(
        "discard on a disk: the commit does not look for what is left", TREE, "TreeAttempt._gather",
        (("self._again(partial(self._drop, name))", "pass"),),
        "a file that was given up is published from directory(), because its removal had failed",
    ),
    Hand(
        "rename on a disk: over another file", TREE, "TreeAttempt._move",
        (("self._tree.rename(source, target, replace=False)",
          "self._tree.rename(source, target)"),),
        "a file of the task is gone without a word",
    ),
    Hand(
        "files on a disk: links are shown", "stores/tree.py", "TreeStore._children",
        (("entry.kind == 'file'", "True"),),
        "a link that somebody made in the destination is read as its data",
    ),
    Hand(
        "files on a disk: links above are followed", "stores/tree.py", "TreeStore._has_link",
        (("seen.kind == 'other'", "False"),),
        "data outside of the destination is shown as its own",
    ),
    Hand(
        "files on a disk: committers' own are shown", "filesystem/homes.py",
        "Home._is_control",
        (("elements[0] == TEMPORARY", "False"),),
        "a writer reads and counts what is not published",
    ),
    Hand(
        "discard on a disk: what could not be removed is forgotten", TREE, "TreeAttempt._drop",
        (("self._left.add(name)", "pass"),),
        "v1 publishes a file that was given up, because its removal had failed",
    ),
    Hand(
        "rename on a disk: a half-done one is committed", TREE, "TreeAttempt.rename",
        (("(self._torn, f'{name!r} could not be renamed to {new!r}')", "(self._torn, '')"),),
        "a file of two names is published under both: a rename of one onto the other does nothing",
    ),
    Hand(
        "files on a disk: given up twice", "committers/manifest/files.py", "TreeFile._remove",
        (("not self._dropped", "True"),),
        "an old handle removes the file that was written later under its name",
    ),
    Hand(
        "files: a directory is put into itself", "filesystem/put.py", "refuse_itself",
        (("source == os.path.commonpath((source, there))", "False"),),
        "the job puts what it is just writing",
    ),
    Hand(
        "files: mv deletes what it has moved onto itself", "filesystem/job_files.py",
        "JobFileSystem.mv",
        (("self._relative(path1) == self._relative(path2)", "path1 == path2"),),
        "a file that is renamed to its own name, spelled otherwise, is gone",
    ),
    Hand(
        "files: mv copies data of the destination", "filesystem/job_files.py", "JobFileSystem._own",
        (("self._sink.shelf.get(name) is None and self.info(name)['type'] == 'file'", "False"),),
        "half of a directory is renamed before the error",
    ),
    Hand(
        "disks: one without hard links is a lack of permission", "file_trees/disk.py",
        "move",
        (("error.errno in _NO_LINKS", "False"),),
        "the operator looks for permissions that are all there",
    ),
)  # fmt: skip
