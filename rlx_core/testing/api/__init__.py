"""Generated descriptions of the public functions: stubs for type checkers, and the reference in `docs/reference`."""
