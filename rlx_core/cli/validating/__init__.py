"""`rlx check --target`: the validation of a real device, each step in a separate process."""
