"""The recipes of the documentation: docs/recipes shows these files,
tests/recipes runs them."""
