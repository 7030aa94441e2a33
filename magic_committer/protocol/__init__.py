"""The protocol, pure: the job record with its table of moves, and the plan. No request is made."""
