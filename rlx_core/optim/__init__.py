"""Optimisers: gradient transformations that chain, and schedules for their rates.

    optimiser = rlx.optim.adamw(1e-3)
    state = optimiser.init(params)
    updates, state = optimiser.update(grads, state, params)
    params = rlx.optim.apply_updates(params, updates)

They are functions of arrays and pytrees, traced inside `rlx.jit` and evaluated immediately outside. `rlx.train_step` combines a
loss, its gradients and an update in one program.
"""

import typing

from rlx_core import public
from rlx_core.optim.adafactor import *
from rlx_core.optim.clipping import *
from rlx_core.optim.loss_scale import *
from rlx_core.optim.masking import MaskedState as MaskedState
from rlx_core.optim.masking import MultiTransformState as MultiTransformState
from rlx_core.optim.masking import masked as masked
from rlx_core.optim.masking import multi_transform as multi_transform
from rlx_core.optim.numbers import Rate as Rate
from rlx_core.optim.numbers import Schedule as Schedule
from rlx_core.optim.optimisers import *
from rlx_core.optim.scaling import *
from rlx_core.optim.schedules import *
from rlx_core.optim.transformation import EmptyState as EmptyState
from rlx_core.optim.transformation import GradientTransformation as GradientTransformation
from rlx_core.optim.transformation import Transformation as Transformation
from rlx_core.optim.transformation import apply_updates as apply_updates
from rlx_core.optim.transformation import chain as chain
from rlx_core.optim.transformation import identity as identity
from rlx_core.optim.transformation import stateless as stateless
from rlx_core.optim.wrapping import *

if not typing.TYPE_CHECKING:  # type checkers read the imports
    __all__, __getattr__ = public.reexports(__name__)
