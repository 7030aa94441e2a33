"""The formats and the layout of Hadoop's Manifest Committer: `names` and `task_manifest`.

No committer stands on them yet: the registry does not know `manifest`.
"""
