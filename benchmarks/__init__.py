"""How this library compares, on a local server: ``python -m benchmarks``.

README.md has the rules that keep the figures honest. What runs in the environment of the peers
(`benchmarks.child`, `benchmarks.writers`) imports nothing of this project's when it is imported.
"""
