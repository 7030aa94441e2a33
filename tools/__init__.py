"""What the Makefile, CI, the demo and the tests run on; not part of the library."""
