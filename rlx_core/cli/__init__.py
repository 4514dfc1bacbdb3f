"""The `rlx` command: inspection, compilation and diagnosis, as text and (`--json`) for programs.

Each module is one command in three parts that can be read and tested alone: gather a record, write it as JSON, lay it
out as tables. This layer prints; it decides nothing about plugins, plans or programs, and no lower layer imports it.
`rlx --help` imports none of the commands, and a command imports no plugin before the global options have been read.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

__all__ = ["run"]

PACKAGES = ("rich", "typer")
"""What the extra `cli` installs."""


def run() -> int:
    """The exit status: 2 if the packages of the command line are not installed; else it runs, and exits."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        print(f"rlx: the command line needs {' and '.join(missing)}, not installed here", file=sys.stderr)
        print('hint: python -m pip install "rlx-core[cli]"', file=sys.stderr)
        return 2
    from rlx_core.cli.main import main  # here, because it imports them

    main()
    return 0
