"""`rlx demo`: sentences embedded with real weights, a classifier trained, and pictures of both.

The programs are `examples/minilm.py` and `examples/digits.py`, as they stand in the repository.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from rlx_core.cli.checkout import from_checkout, loaded
from rlx_core.cli.session import CliSession
from rlx_core.cli.tables import report_tables
from rlx_core.draw.view import svg
from rlx_core.errors import ConfigError
from rlx_core.plugins import set_default_host

SENTENCES = (
    "The cat sleeps on the warm windowsill.",
    "A kitten is napping in the sun by the window.",
    "Compilers translate programs written in one language into another.",
    "An optimising compiler rewrites a program so that it runs faster, and must never change what the program means.",
    "Fresh bread.",
    "The baker takes a loaf out of the oven.",
)


def demo(
    ctx: typer.Context,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the numbers to this file.")
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the pictures go.")] = Path("demo-out"),
    target: Annotated[str | None, typer.Option(metavar="NAME", help="The device to compile for.")] = None,
) -> None:
    """Embed sentences, train a classifier, draw both programs."""
    from_checkout("demo")
    session = CliSession.of(ctx)
    before = set_default_host(session.host)  # the programs of the demo compile as anyone's do: with the default host
    try:
        run_demo(Console(no_color=session.is_plain or None), out, json_file, target)
    finally:
        set_default_host(before)


def example(name: str) -> ModuleType:
    """A module of the examples folder.

    Raises:
        ConfigError: rlx runs from an installed package without the examples, or the example's packages are missing.
    """
    path = from_checkout("demo") / "examples" / f"{name}.py"
    try:
        return loaded(path, f"rlx_examples_{name}")
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"demo: the package {error.name!r} is not installed",
            hint='in the checkout: pip install -e ".[demo]"; `make demo` does everything',
        ) from error


def run_demo(console: Console, out: Path, json_file: Path | None, target: str | None = None) -> None:
    """Run both parts, print a summary, write pictures under `out` and numbers to `json_file`."""
    out.mkdir(parents=True, exist_ok=True)
    numbers: dict[str, Any] = {}
    numbers |= embed_sentences(console, out, target)
    numbers |= train_digits(console, out, target)
    console.print(f"\npictures: {', '.join(str(p) for p in sorted(out.glob('*.svg')))}")
    if json_file is not None:
        json_file.write_text(json.dumps(numbers, indent=1) + "\n")
        console.print(f"numbers: {json_file}")


def embed_sentences(console: Console, out: Path, target: str | None) -> dict[str, Any]:
    """Embed the sentences in one padded batch and print how similar they are, and what was compiled."""
    console.rule("[bold]1. Sentences embedded with MiniLM-L6")
    minilm = example("minilm")
    start = time.perf_counter()
    model, tokenizer = minilm.build(target=target)
    built = time.perf_counter() - start
    ids, mask = minilm.tokenize(tokenizer, SENTENCES)
    start = time.perf_counter()
    embeddings = model(ids, mask)
    first = time.perf_counter() - start
    seconds = [_timed(lambda: model(ids, mask)) for _ in range(5)]
    similarity = embeddings @ embeddings.T
    console.print(similarity_table(SENTENCES, similarity))
    report = model.report
    for table in report_tables(report):
        console.print(table)
    console.print(
        f"weights read and model compiled in {built:.2f} s; first run {first * 1e3:.0f} ms (sizes bound, weights "
        f"prepared), then {np.median(seconds) * 1e3:.1f} ms for {ids.shape[0]} sentences of up to {ids.shape[1]} tokens"
    )
    (out / "minilm-graph.svg").write_text(svg(report.graph, collapse=True))
    return {
        "sentences": list(SENTENCES),
        "embeddings": embeddings.tolist(),
        "similarity": similarity.tolist(),
        "embed_ms": float(np.median(seconds) * 1e3),
        "arena_bytes": report.arena_nbytes,
        "unshared_bytes": report.unshared_nbytes,
    }


def train_digits(console: Console, out: Path, target: str | None) -> dict[str, Any]:
    """Train the classifier behind a progress bar, and draw its loss."""
    console.rule("[bold]2. A classifier of handwritten digits, trained")
    digits = example("digits")
    epochs, batch = 30, 32
    (train_x, _), (held_x, held_y) = digits.data()
    total = epochs * (len(train_x) // batch)
    losses: list[float] = []
    params: Any = None
    columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("loss {task.fields[loss]:.4f}"))
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        task = progress.add_task("", total=total, loss=float("nan"))
        for params, loss in digits.train(epochs, batch, target):  # noqa: B007 - only the last parameters are used
            losses.append(loss)
            progress.update(task, advance=1, loss=loss)
    accuracy = digits.accuracy(params, held_x, held_y, target)
    console.print(f"held-out accuracy [bold]{accuracy:.1%}[/] on {len(held_y)} digits never seen in training")
    draw_losses(losses, total // epochs, out / "digits-loss.svg")
    step = digits.compiled(target)[0].executables[-1]
    (out / "digits-step-graph.svg").write_text(svg(step.report.graph))
    return {"digits_accuracy": accuracy, "digits_loss": losses}


def similarity_table(sentences: Sequence[str], similarity: np.ndarray) -> Table:
    """Cosine similarities, each sentence against each."""
    table = Table(title="cosine similarity", title_justify="left")
    table.add_column("")
    for i in range(len(sentences)):
        table.add_column(str(i + 1), justify="right")
    for i, sentence in enumerate(sentences):
        short = sentence if len(sentence) <= 48 else sentence[:47] + "…"
        cells = [f"[bold]{s:.2f}[/]" if s > 0.5 and i != j else f"{s:.2f}" for j, s in enumerate(similarity[i])]
        table.add_row(f"{i + 1} {short}", *cells)
    return table


def draw_losses(losses: Sequence[float], steps_per_epoch: int, path: Path) -> None:
    """The loss of each step, and its mean over each epoch."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 3.5), layout="constrained")
    axes.plot(losses, color="#b8c4d6", linewidth=0.8, label="each step")
    means = np.mean(np.reshape(losses, (-1, steps_per_epoch)), axis=1)
    axes.plot((np.arange(len(means)) + 0.5) * steps_per_epoch, means, color="#1f4e8c", label="mean of an epoch")
    axes.set(xlabel="step", ylabel="cross-entropy", yscale="log", title="Training on handwritten digits")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path)
    pyplot.close(figure)


def _timed(action: Any) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start
