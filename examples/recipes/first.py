"""Start in five minutes: two jobs on an S3 in memory, one of which fails."""

import magic_committer as mc
from magic_committer.testing import memory_store

with memory_store("bucket") as s3:
    with mc.write("s3://bucket/table") as job:
        with job.open("part-0.csv", "w") as f:
            f.write("1,2,3\n")
        with job.open("part-1.csv", "w") as f:
            f.write("4,5,6\n")
        print("inside: ", [key for key in s3.keys() if key.endswith(".csv")])
    print("outside:", s3.keys())

    try:
        with mc.write("s3://bucket/other") as job:
            with job.open("part-0.csv", "w") as f:
                f.write("1,2,3\n")
            raise RuntimeError("the second half of the data is missing")
    except RuntimeError as error:
        print("failed: ", error)
    print("left:   ", s3.keys("other/"), len(s3.open_uploads()), "uploads")
