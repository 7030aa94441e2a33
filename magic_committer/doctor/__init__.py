"""What a job may and can do under a destination: permissions, capabilities, IAM policies."""
