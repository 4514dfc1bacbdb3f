"""Layout of the record that `interrupted` and Python share, one per process."""

from __future__ import annotations

MAIN_THREAD, NEXT, CAUGHT, RECORD_BYTES = 0, 8, 16, 40
"""The main thread, when to look again, and an exception as the interpreter puts it: type, value, traceback."""
