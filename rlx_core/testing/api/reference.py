"""The API reference, `docs/reference/`: a table of functions for each public namespace, from signatures and docstrings.

    python -m rlx_core.testing.api.reference --update

writes the pages; a test compares them with the functions. `help(rlx.sum)` prints the whole docstring of a function.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import rlx_core
from rlx_core.public import CORE, FUNCTIONS, found_at, place_of

FOLDER: Final = Path(rlx_core.__file__).parents[1] / "docs" / "reference"

NAMESPACES: Final = (
    "nn",
    "linalg",
    "fft",
    "random",
    "special",
    "optim",
    "quantization",
    "debug",
    "checkpoint_policies",
)
"""The namespaces below `rlx`, in the order of the index."""

HEADER: Final = "<!-- Printed by `python -m rlx_core.testing.api.reference --update` from the docstrings. -->\n\n"


def pages() -> dict[Path, str]:
    """Return the text of every page by its path."""
    page_texts = {"rlx": _page("rlx", "Functions of arrays, transforms, files and devices.", _top())}
    for name in NAMESPACES:
        module = getattr(rlx_core, name)
        page_texts[name] = _page(f"rlx.{name}", _first_paragraph(module), {name: _functions(module)})
    index = [
        "# API reference\n",
        "`import rlx_core as rlx`. Each page has the functions of one namespace, with their parameters and a summary; "
        "`help(rlx.sum)` prints the whole docstring.\n",
        "| namespace | functions |",
        "|---|---|",
        f"| [rlx](rlx.md) | {_count(page_texts['rlx'])} |",
        *(f"| [rlx.{name}](rlx.{name}.md) | {_count(page_texts[name])} |" for name in NAMESPACES),
    ]
    texts = {FOLDER / "README.md": HEADER + "\n".join(index) + "\n", FOLDER / "rlx.md": page_texts.pop("rlx")}
    return texts | {FOLDER / f"rlx.{name}.md": text for name, text in page_texts.items()}


def stale() -> dict[Path, str]:
    """Return the pages whose files are out of date."""
    return {p: text for p, text in pages().items() if not p.exists() or p.read_text(encoding="utf-8") != text}


def _top() -> dict[str, dict[str, Any]]:
    """The functions of `rlx` itself: those of programs, then those of arrays by the module of their ops."""
    sections: dict[str, dict[str, Any]] = {"programs": {}}
    public = {**FUNCTIONS, **CORE}
    for name in (*CORE, *FUNCTIONS):
        value = found_at(*place_of(public, name))
        if callable(value) and inspect.getdoc(value) and not isinstance(value, ModuleType):
            section = FUNCTIONS[name].rpartition(".")[2] if name in FUNCTIONS else "programs"
            sections.setdefault(section, {})[name] = value
    return sections


def _functions(module: ModuleType) -> dict[str, Any]:
    return {name: value for name in sorted(module.__all__) if callable(value := getattr(module, name))}


def _page(title: str, summary: str, sections: Mapping[str, Mapping[str, Any]]) -> str:
    lines = [f"# `{title}`\n", f"{summary}\n"]
    for section, functions in sections.items():
        if len(sections) > 1:
            lines.append(f"## {section.replace('_', ' ')}\n")
        lines += ["| function | summary |", "|---|---|", *_rows(functions), ""]
    return HEADER + "\n".join(lines).rstrip() + "\n"


def _rows(functions: Mapping[str, Any]) -> Iterator[str]:
    for name, function in functions.items():
        yield f"| `{name}({_parameters(function)})` | {_cell(_first_paragraph(function))} |"


def _parameters(function: Any) -> str:
    """The parameters with their defaults, without annotations."""
    try:
        parameters: Iterable[inspect.Parameter] = inspect.signature(function).parameters.values()
    except ValueError:  # classes written in C have none
        return "…"
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in parameters if not p.name.startswith("_")]
    plain = [p if _is_short(p.default) else p.replace(default=_Elided()) for p in plain]
    return str(inspect.Signature(plain))[1:-1].replace("|", "\\|")


class _Elided:
    """The default of a parameter whose value is too long for a table."""

    def __repr__(self) -> str:
        return "…"


def _is_short(default: Any) -> bool:
    items = default if isinstance(default, tuple) else (default,)
    return default is inspect.Parameter.empty or all(type(v) in (bool, int, float, str, type(None)) for v in items)


def _first_paragraph(documented: Any) -> str:
    return " ".join((inspect.getdoc(documented) or "").partition("\n\n")[0].split())


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _count(page: str) -> int:
    return sum(line.startswith("| `") for line in page.splitlines())


def main(arguments: list[str]) -> int:
    """Write the pages, or print which of them differ from the functions."""
    parser = argparse.ArgumentParser(
        prog="python -m rlx_core.testing.api.reference", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--update", action="store_true", help="write the pages")
    update, changed = parser.parse_args(arguments).update, stale()
    for path, text in changed.items():
        if update:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        print(path, "was written" if update else "differs from the functions; --update writes it", file=sys.stderr)
    return 1 if changed and not update else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
