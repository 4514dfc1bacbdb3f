"""The `rlx` command: inspection, compilation and diagnosis, as text and (`--json`) for programs.

Each module is one command in three parts that can be read and tested alone: gather a record, write it as JSON, lay it
out as tables. This layer prints; it decides nothing about plugins, plans or programs, and no lower layer imports it.
`rlx --help` imports none of the commands, and a command imports no plugin before the global options have been read.
"""
