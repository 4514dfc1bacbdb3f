"""What can be done to a graph without knowing the device: one pass or one rule set a file.

This layer knows ops by name, because a rewrite is about ops; it knows no target (a pass reads what it needs through
`TargetView`) and no pipeline: which passes run, in which order and with which options, is configuration.
"""
