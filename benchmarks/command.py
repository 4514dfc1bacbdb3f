"""What `rlx bench` runs. It is loaded from where it lies, and makes the checkout's packages importable before it needs one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def bench(host: Any, *, is_plain: bool, threads: int, **settings: Any) -> None:
    """Time the chosen cases.

    Args:
        host: The plugins that rlx uses.
        is_plain: Whether tables are printed without colours.
        threads: For everybody.
        settings: The other fields of `benchmarks.runner.Settings`.
    """
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    from benchmarks.measure import limit_threads

    limit_threads(threads)  # before anything that makes a pool of threads is imported
    from rich.console import Console

    from benchmarks.runner import Settings, run
    from rlx_core.plugins import set_default_host

    set_default_host(host)
    run(Settings(threads=threads, **settings), Console(no_color=is_plain or None))
