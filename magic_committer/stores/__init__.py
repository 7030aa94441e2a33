"""The port that the library asks (`base`), and the stores behind it."""
