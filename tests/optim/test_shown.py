"""Optimisers as they are shown, and rates that are none."""

from __future__ import annotations

import pytest

from rlx_core import optim
from rlx_core.errors import ConfigError

MAKERS = [optim.sgd, optim.adam, optim.adamw, optim.lion, optim.rmsprop, optim.adagrad]


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_an_optimiser_is_shown_as_the_call_that_made_it(make):
    assert repr(make(0.5)) == f"{make.__name__}(learning_rate=0.5)"


def test_a_chain_has_no_addresses():
    assert "0x" not in repr(optim.chain(optim.clip(1.0), optim.sgd(0.1)))


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("rate", ["1e-3", None])
def test_a_rate_that_is_no_number_is_refused(make, rate):
    with pytest.raises(ConfigError, match="learning_rate is"):
        make(rate)
