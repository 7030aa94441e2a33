"""Files that can be renamed: `base` is the port, the other modules are file systems behind it."""
