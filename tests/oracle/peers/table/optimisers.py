"""Several steps of an optimiser with given gradients, beside `torch.optim`; Lion, which it lacks, by its paper's formula."""

from __future__ import annotations

from typing import Any

import torch

from rlx_core import optim

from ..rows import WIDE, Draw, Family, Row

__all__ = ["FAMILY"]

STEPS = 4


def steps(d: Draw) -> Any:
    """Parameters, and a gradient for each step; none is so small that an optimiser's eps would matter."""
    shape = d.shape(d.size(1, 2), 2, 5)
    signs = d.elements.choice([-1.0, 1.0], (STEPS, *shape))
    return (d.floats(shape), d.rounded(signs * d.elements.uniform(0.2, 1.5, signs.shape))), {}


def ours_steps(optimiser: optim.GradientTransformation) -> Any:
    def run(p: Any, grads: Any) -> Any:
        state = optimiser.init(p)
        for i in range(STEPS):
            updates, state = optimiser.update(grads[i], state, p)
            p = optim.apply_updates(p, updates)
        return p

    return run


def torch_steps(make: Any, clip: Any = None) -> Any:
    def run(p: Any, grads: Any) -> Any:
        param = torch.nn.Parameter(p.clone())
        optimiser = make([param])
        for grad in grads:
            param.grad = grad.clone()
            if clip is not None:
                clip([param])
            optimiser.step()
        return param.detach()

    return run


def lion(p: Any, grads: Any) -> Any:
    """Chen et al. 2023, "Symbolic discovery of optimization algorithms", arXiv:2302.06675, algorithm 2."""
    m = torch.zeros_like(p)
    for g in grads:
        p = p - 0.1 * (torch.sign(0.9 * m + 0.1 * g) + 0.02 * p)
        m = 0.99 * m + 0.01 * g
    return p


def stepped(name: str, ours: optim.GradientTransformation, theirs: Any, **more: Any) -> Row:
    return Row(
        f"optim.{name}",
        ours_steps(ours),
        steps,
        theirs,
        dtypes=WIDE,
        asks={"dtype", "forward", "batch"},
        slack=256,
        why="several steps",
        **more,
    )


def rates(d: Draw) -> Any:
    return (d.integers(12, (3,)),), {}


def torch_rates(make: Any) -> Any:
    """The rate after so many steps of a scheduler."""

    def at(counts: Any) -> Any:
        optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.5)
        scheduler, found = make(optimiser), []
        for _ in range(12):
            found.append(scheduler.get_last_lr()[0])
            optimiser.step()
            scheduler.step()
        return torch.tensor(found, dtype=torch.float64)[counts]

    return at


def scheduled(name: str, schedule: Any, make: Any) -> Row:
    # A rate is computed in f32, whatever the parameters are.
    return Row(
        f"optim.{name}", schedule, rates, torch_rates(make), dtypes=("f32",), asks={"forward", "batch"}, slack=16
    )


T = torch.optim
S = torch.optim.lr_scheduler
INSIDE = "`eps` is added inside the root, as in Optax; PyTorch adds it outside"

FAMILY = Family(
    "Optimisers, four steps",
    [
        stepped("sgd", optim.sgd(0.1), torch_steps(lambda p: T.SGD(p, 0.1))),
        stepped("sgd(momentum=0.9)", optim.sgd(0.1, 0.9), torch_steps(lambda p: T.SGD(p, 0.1, 0.9))),
        stepped(
            "sgd(nesterov=True)",
            optim.sgd(0.1, 0.9, nesterov=True),
            torch_steps(lambda p: T.SGD(p, 0.1, 0.9, nesterov=True)),
        ),
        stepped("adam", optim.adam(0.1), torch_steps(lambda p: T.Adam(p, 0.1))),
        stepped(
            "adam, a large eps",
            optim.adam(0.1, 0.8, 0.95, 0.1),
            torch_steps(lambda p: T.Adam(p, 0.1, (0.8, 0.95), 0.1)),
        ),
        stepped(
            "adamw",
            optim.adamw(0.1, weight_decay=0.05),
            torch_steps(lambda p: T.AdamW(p, 0.1, weight_decay=0.05)),
            note="`weight_decay` is 1e-4 unless it is given; PyTorch's is 1e-2",
        ),
        stepped(
            "rmsprop",
            optim.rmsprop(0.1, 0.99, 1e-30),
            torch_steps(lambda p: T.RMSprop(p, 0.1, eps=0.0)),
            note="`decay` is 0.9 unless it is given; PyTorch's `alpha` is 0.99",
        ),
        stepped(
            "rmsprop, a large eps",
            optim.rmsprop(0.1, 0.99, 1e-2),
            torch_steps(lambda p: T.RMSprop(p, 0.1, eps=1e-2)),
            differs={("torch", "forward"): INSIDE, ("torch", "batch"): INSIDE},
        ),
        stepped(
            "rmsprop(centered=True, momentum=0.9)",
            optim.rmsprop(0.1, 0.9, 1e-30, centered=True, momentum=0.9),
            torch_steps(lambda p: T.RMSprop(p, 0.1, 0.9, 0.0, centered=True, momentum=0.9)),
        ),
        stepped(
            "adagrad",
            optim.adagrad(0.1, 0.1, 1e-30),
            torch_steps(lambda p: T.Adagrad(p, 0.1, initial_accumulator_value=0.1, eps=0.0)),
        ),
        stepped(
            "adafactor",
            optim.adafactor(0.01, min_dim_size_to_factor=1),
            torch_steps(lambda p: T.Adafactor(p, 0.01)),
            note="by default averages are factored from 128 elements per axis on",
        ),
        stepped("lion", optim.lion(0.1, weight_decay=0.02), lion),
        stepped(
            "clip",
            optim.chain(optim.clip(0.5), optim.sgd(0.1)),
            torch_steps(lambda p: T.SGD(p, 0.1), lambda p: torch.nn.utils.clip_grad_value_(p, 0.5)),
        ),
        stepped(
            "clip_by_global_norm",
            optim.chain(optim.clip_by_global_norm(0.5), optim.sgd(0.1)),
            torch_steps(lambda p: T.SGD(p, 0.1), lambda p: torch.nn.utils.clip_grad_norm_(p, 0.5)),
            inexact={"torch": (1e-5, "PyTorch adds 1e-6 to the norm")},
        ),
        scheduled("cosine_decay_schedule", optim.cosine_decay_schedule(0.5, 12), lambda o: S.CosineAnnealingLR(o, 12)),
        scheduled("exponential_decay", optim.exponential_decay(0.5, 1, 0.8), lambda o: S.ExponentialLR(o, 0.8)),
        scheduled(
            "piecewise_constant_schedule",
            optim.piecewise_constant_schedule(0.5, {3: 0.1, 7: 0.5}),
            lambda o: S.LambdaLR(o, lambda i: (0.1 if i >= 3 else 1.0) * (0.5 if i >= 7 else 1.0)),
        ),
        scheduled("linear_schedule", optim.linear_schedule(0.5, 0.05, 8), lambda o: S.LinearLR(o, 1.0, 0.1, 8)),
    ],
)
