"""What `import rlx_core` costs, against `import numpy`, each in twenty fresh interpreters.

    python benchmarks/import_time.py

The interpreter's own start is measured too and subtracted; the medians are printed in milliseconds. The aim is at most 100 ms
for rlx with NumPy, and rlx's share is the difference of the first two lines.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

REPEATS = 20

PROGRAMS = {
    "import rlx_core, numpy": "import rlx_core, numpy",
    "import numpy": "import numpy",
    "import rlx_core": "import rlx_core",
    "rlx_core.jit (the compiler, no plugin)": "import rlx_core; rlx_core.jit",
}


def seconds(program: str) -> float:
    """The wall time of one fresh interpreter that runs `program`."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True)
    return time.perf_counter() - start


def medians() -> dict[str, float]:
    """Milliseconds of each program beyond an interpreter that does nothing; the programs take turns, so that drift is shared."""
    seconds("import rlx_core, numpy; rlx_core.jit")  # byte code is written once and is not part of any time
    times: dict[str, list[float]] = {program: [] for program in ("pass", *PROGRAMS.values())}
    for _ in range(REPEATS):
        for program, samples in times.items():
            samples.append(seconds(program))
    start = statistics.median(times["pass"])
    return {name: 1e3 * (statistics.median(times[program]) - start) for name, program in PROGRAMS.items()}


def main() -> None:
    for name, milliseconds in medians().items():
        print(f"{name:<42} {milliseconds:7.1f} ms")


if __name__ == "__main__":
    main()
