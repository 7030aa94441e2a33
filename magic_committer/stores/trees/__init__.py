"""Files that can be renamed: `base` is the port, `dialects` chooses the file system behind it."""
