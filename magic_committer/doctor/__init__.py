"""What a job may do and can do under a destination: permissions, capabilities, IAM policies."""
