"""A small Llama is trained on Python's own manual, saved as a checkpoint that other libraries read, and writes on from there.

Nothing of the model is written here: `from_pretrained` makes it of its configuration, with weights at random at first.

    python examples/llama.py
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core import nn, optim
from rlx_models import from_pretrained, generate

TEXT = "".join(topics[name] for name in sorted(topics))
IDS = np.frombuffer(TEXT.encode("ascii", "replace"), np.uint8).astype(np.int64)
FOLDER = Path("demo-out/llama")

WORDS, D, INNER, LAYERS, HEADS, KV_HEADS, LENGTH, BATCH, STEPS = 128, 128, 344, 3, 4, 2, 256, 8, 600
CONFIG = {
    "model_type": "llama", "vocab_size": WORDS, "hidden_size": D, "intermediate_size": INNER, "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "tie_word_embeddings": True,
}  # fmt: skip
KEYS = D * KV_HEADS // HEADS
LAYER: dict[str, tuple[int, ...]] = {
    "self_attn.q_proj": (D, D), "self_attn.k_proj": (KEYS, D), "self_attn.v_proj": (KEYS, D), "self_attn.o_proj": (D, D),
    "mlp.gate_proj": (INNER, D), "mlp.up_proj": (INNER, D), "mlp.down_proj": (D, INNER),
    "input_layernorm": (D,), "post_attention_layernorm": (D,),
}  # fmt: skip


def initial(seed: int = 0) -> dict[str, np.ndarray]:
    """Weights at random by the names that checkpoints have them under."""
    rng = np.random.default_rng(seed)
    shapes = {f"layers.{n}.{name}": shape for n in range(LAYERS) for name, shape in LAYER.items()}
    shapes |= {"embed_tokens": (WORDS, D), "norm": (D,)}
    drawn = {name: rng.normal(0, 0.08, each) if len(each) > 1 else np.ones(each) for name, each in shapes.items()}
    return {f"{name}.weight": each.astype(np.float32) for name, each in drawn.items()}


def saved(parameters: Any) -> Any:
    """The model of a checkpoint, which is written first."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "config.json").write_text(json.dumps(CONFIG))
    rlx.save(FOLDER / "model.safetensors", parameters)
    return from_pretrained(FOLDER)


def trained(model: Any) -> tuple[Any, float]:
    def loss(parameters: Any, ids: Any) -> Any:
        return nn.cross_entropy(model.function(parameters, ids[:, :-1]), ids[:, 1:])

    optimiser = optim.adamw(optim.warmup_cosine_decay_schedule(0.0, 4e-3, 30, STEPS), weight_decay=0.1)
    step, rng, value = rlx.train_step(loss, optimiser), np.random.default_rng(1), np.float32(0)
    parameters, state = model.parameters, optimiser.init(model.parameters)
    for _ in range(STEPS):
        places = rng.integers(0, len(IDS) - LENGTH, (BATCH, 1)) + np.arange(LENGTH + 1)
        parameters, state, value = step(parameters, state, IDS[places])
    return parameters, float(value)


def main() -> None:
    parameters, loss = trained(saved(initial()))
    model, prompt, count = saved(parameters), list(b'The "with" statement '), 230
    generate(model, [prompt], count, key=rlx.random.key(0), temperature=0.6, top_k=20)  # compiles
    begun = time.perf_counter()
    (written,) = generate(model, [prompt], count, key=rlx.random.key(1), temperature=0.6, top_k=20)
    print(bytes([*prompt, *written]).decode("ascii"))
    print(f"loss {loss:.3f}, {count / (time.perf_counter() - begun):.0f} characters a second")


if __name__ == "__main__":
    main()
