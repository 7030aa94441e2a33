"""The adapter to S3 and what speaks its protocol; the only home of boto3, botocore, s3transfer and
tenacity. It imports ports and vocabulary alone."""

from magic_committer.stores.s3.client import S3Store, connect

__all__ = ["S3Store", "connect"]
