"""`run`: one call that runs tasks on somebody's executor and commits what they wrote."""
