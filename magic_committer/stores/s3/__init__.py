"""The adapter to S3 and to stores with its protocol. The only home of boto3, botocore, s3transfer,
httptools. It imports only ports and vocabulary."""

from magic_committer.stores.s3.client import S3Store, connect

__all__ = ["S3Store", "connect"]
