"""From logits to a token. The result depends on (logits, temperature, seed, position) and on nothing else."""
from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .errors import RuntimeFault
from .philox import uniforms

GREEDY_BELOW = 1e-5  # a lower temperature is argmax by definition (spec §6.1)

Row = NDArray[np.float32]


def sample(logits: Row, temperature: float, seed: int, position: int) -> int:
    """The token at absolute position `position`, from logits f32 [V].

    Argmax below GREEDY_BELOW; else Gumbel-max in fp64: the argmax of logits / temperature + noise is distributed as
    softmax(logits / temperature). Ties go to the lowest id. Raises RuntimeFault E-RUN-015 if a logit is NaN.
    """
    if np.isnan(logits).any():
        raise RuntimeFault("E-RUN-015", position=position - 1)
    if temperature < GREEDY_BELOW:
        return int(np.argmax(logits))
    noise = -np.log(-np.log(uniforms(seed, position, logits.size)))
    return int(np.argmax(logits.astype(np.float64) / temperature + noise))


def log_probability(logits: Row, token: int) -> float:
    """log softmax(logits)[token], in fp64."""
    wide = logits.astype(np.float64)
    top = wide.max()
    return float(wide[token] - top - np.log(np.exp(wide - top).sum()))
