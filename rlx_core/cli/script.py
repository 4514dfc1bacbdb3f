"""The `rlx` script: it states which packages the command line needs where they are not installed."""

from __future__ import annotations

import sys
from importlib.util import find_spec

__all__ = ["main"]

PACKAGES = ("rich", "typer")
"""What the extra `cli` installs."""


def main() -> int:
    """The exit status: 2 if the packages of the command line are not installed; else it runs, and exits."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        print(f"rlx: the command line needs {' and '.join(missing)}, not installed here", file=sys.stderr)
        print('hint: python -m pip install "rlx-core[cli]"', file=sys.stderr)
        return 2
    from rlx_core.cli.main import main as run  # here, because it imports them

    run()
    return 0
