"""Jobs whose tasks run on somebody's engine. `items`: we call it; `sink`: it calls us."""
