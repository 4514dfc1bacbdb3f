"""What `interrupted` and Python say to each other, as bytes in a record that a process has one of."""

from __future__ import annotations

__all__ = ["CAUGHT", "MAIN_THREAD", "NEXT", "RECORD_BYTES"]

MAIN_THREAD, NEXT, CAUGHT, RECORD_BYTES = 0, 8, 16, 40
"""The main thread, when to look again, and an exception as the interpreter puts it: type, value, traceback."""
