"""For operators, and for jobs whose driver died. The public calls are in `api`."""
