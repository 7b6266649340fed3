"""A package computes what its kernels compute one by one: memory plan, chunk loops, packing and launcher add nothing.

Kernels are compared with the interpreter one at a time (test_kernels_of_the_model.py), and packages with themselves
(tests/e2e); this is the link between the two. An error that is the same in every chunking would pass both.
"""
from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from dinfc.interpret import load_reference, score
from dinfc.runtime.plan import load_plan
from support.compiled_model import kernel_library, scheduled_model
from support.kernel_diff import ChainedKernels
from support.package import checkpoint, package, same_bits, scores

# Longer than a page of 128 tokens, and far beyond the window; steps of 64 rows run every chunk loop more than once.
TEXT = list(range(1, 141))
# The first rows only, against the interpreter: with random weights a difference in the last bit grows within a few
# rows into other experts and other keys. The interpreter does the same to itself: one bf16 ulp in one element of one
# embedding changes the argmax of nearly half of the rows behind it.
ROWS_BEFORE_A_FLIP, NEAR = 8, 1e-5


@pytest.fixture(scope="module")
def packaged() -> NDArray[np.float32]:
    return scores([TEXT])[0]


def test_every_row_has_the_bits_of_kernels_run_one_by_one(packaged: NDArray[np.float32]) -> None:
    tiny = scheduled_model("tiny-test")
    model = load_reference(tiny.deployment, checkpoint())
    loops = load_plan(package()).loops
    assert loops and all(rows < tiny.limits.max_tokens for _, _, rows in loops), "a chunk loop runs once"
    model.interpreter = ChainedKernels(tiny.module, model.interpreter.weights, [kernel_library("tiny-test", False)],
                                       model.slots, model.page_count)
    chained = score(model, TEXT, []).numpy()
    assert same_bits(chained, packaged)


def test_the_first_rows_are_those_of_the_interpreter(packaged: NDArray[np.float32]) -> None:
    tiny = scheduled_model("tiny-test")
    model = load_reference(tiny.deployment, checkpoint())
    expected = score(model, TEXT[:ROWS_BEFORE_A_FLIP], [])
    error = (torch.from_numpy(packaged[:ROWS_BEFORE_A_FLIP]) - expected).abs().amax(1) / expected.abs().amax(1)
    assert float(error.max()) < NEAR, error.tolist()
