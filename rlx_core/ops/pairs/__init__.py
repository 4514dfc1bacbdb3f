"""A complex number as the two real ones that it is in memory, and back: nothing is computed, and nothing moves."""
