"""Everything that must equal Hadoop's S3A byte for byte: paths, names, files, statistics. Nothing
else."""
