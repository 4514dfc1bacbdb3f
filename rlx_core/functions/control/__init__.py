"""Control flow as functions of Python: bodies are traced once, and what they capture becomes an operand of the op."""
