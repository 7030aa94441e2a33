"""Streaming uploads, ours beside other libraries', on a local server that answers at once.

``python -m benchmarks`` runs it. Rules that keep the figures honest:

* All writers run in the same rounds, one after the other, against the same server: only ratios
  between them mean anything.
* The server reads and discards (`benchmarks.server`): one that buffers bodies is the bottleneck,
  and makes slow clients look alike.
* Each run is a process of its own, so that memory and CPU time are the writer's alone.
* Every piece is a new object with new bytes: a library that keeps references, or sends a buffer
  twice, gains nothing by it.
* How payloads are signed decides much over plain HTTP. It is not assumed: the server reports it.
* In one round the server computes the CRC of every part, and the bytes that were stored are
  compared with those that were written.
"""
