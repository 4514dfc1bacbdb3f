"""What can be done to a graph without knowing the device: one pass or one rule set a file.

This layer knows ops by name, because a rewrite is about ops; it knows no target (a pass reads what it needs through
`TargetView`) and no pipeline: which passes run, in which order and with which options, is configuration. `engine/` is what
passes are written with and run by, `recognise/` finds ops in arithmetic, `fuse/` makes one op of several, and the rest is here.
Packages import what a pass and a rule are from `base`, `rules`, `apply_rules`, `rule_checks` and `runner` of this folder.
"""
