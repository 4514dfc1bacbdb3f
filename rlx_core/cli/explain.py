"""`rlx explain`: the page of a kind of error, which is the docstring of its class."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from rlx_core.cli.session import CliSession
from rlx_core.errors import RlxError, UnknownNameError, nearest

Page = type[RlxError]


def explain(
    ctx: typer.Context,
    topic: Annotated[str, typer.Argument(help="What `more` said below an error, or the error's class.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Explain a kind of error; without a topic, list them all."""
    session = CliSession.of(ctx)
    if topic:
        session.answer(lambda: find(topic), page_json if as_json else None, page_layout)
    else:
        session.answer(
            pages, (lambda listed: {"topics": list(map(page_json, listed))}) if as_json else None, list_layout
        )


def pages() -> list[Page]:
    """Every class of error that is loaded, by topic."""
    result: list[Page] = []
    waiting: list[Page] = [RlxError]
    while waiting:
        each = waiting.pop()
        if each not in result:
            result.append(each)
            waiting += each.__subclasses__()
    return sorted(result, key=lambda page: page.page)


def find(topic: str) -> Page:
    """The class a topic means: `shape`, `shape-error` and `ShapeError` are one.

    Raises:
        UnknownNameError: No error has such a page.
    """
    known = {page.page: page for page in pages()}
    by_class = {page.__name__.lower(): page for page in known.values()}
    word = topic.lower()
    match = known.get(word) or known.get(word.removesuffix("-error")) or by_class.get(word)
    if match is None:
        raise UnknownNameError(
            f"explain: there is no topic {topic!r}", hint=nearest(word, known) or "`rlx explain` lists them all"
        )
    return match


def builtin_kinds(page: Page) -> list[str]:
    """The builtin exceptions it is a kind of, which `except` clauses may name as well."""
    return [base.__name__ for base in page.__bases__ if base.__module__ == "builtins" and base is not Exception]


def relatives(page: Page) -> list[str]:
    """The topics that are special cases of this one."""
    return sorted(each.page for each in page.__subclasses__()) if page is not RlxError else []


def page_json(page: Page) -> dict[str, Any]:
    """One page with stable keys."""
    parents = [base.page for base in page.__bases__ if issubclass(base, RlxError) and base is not RlxError]
    return {
        "topic": page.page,
        "class": page.__name__,
        "catch": ["RlxError", *builtin_kinds(page)],
        "text": inspect.getdoc(page) or "",
        "special_case_of": parents,
        "special_cases": relatives(page),
    }


def page_layout(page: Page) -> Iterator[Any]:
    """The page itself."""
    from rlx_core.cli.tables import facts, heading

    content = page_json(page)
    yield heading(f"{page.__name__}  ({page.page})")
    yield ""
    yield content["text"]
    yield ""
    yield facts(
        [
            ("catch as", ", ".join([page.__name__, *content["catch"]]) if page is not RlxError else "RlxError"),
            ("a kind of", ", ".join(content["special_case_of"])),
            ("kinds", ", ".join(content["special_cases"])),
        ]
    )


def list_layout(listed: list[Page]) -> Iterator[Any]:
    """Every topic with the first line of its page."""
    from rlx_core.cli.tables import listing

    rows = [(page.page, (inspect.getdoc(page) or "").split("\n")[0]) for page in listed]
    yield listing(("topic", "what it says"), rows)
    yield "\n`rlx explain TOPIC` has the whole page."
