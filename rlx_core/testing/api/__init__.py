"""What is printed of the public functions: stubs for type checkers, and the reference in `docs/reference`."""
