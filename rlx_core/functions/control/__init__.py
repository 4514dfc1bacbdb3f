"""Control flow of Python functions: bodies are traced once, and their captures become operands of the op."""
