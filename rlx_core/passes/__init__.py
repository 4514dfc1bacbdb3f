"""Target-independent graph transformations: one pass or one rule set a file.

This layer names ops, because a rewrite is about ops; it depends on no target (a pass reads its requirements through
`TargetView`) and no pipeline: the passes, their order and their options are configuration. `engine/` is the framework that
passes are written and run with, `recognise/` finds ops in arithmetic, `fuse/` makes one op of several, and the rest is here.
Packages import the classes of passes and rules from `base`, `rules`, `apply_rules`, `rule_checks` and `runner` of this folder.
"""
