"""Conversion of a complex number to its two real parts in memory, and back: views without computation or copies."""
