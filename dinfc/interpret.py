"""The reference interpreter on a real checkpoint: what `dinfc interpret` does."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from dinfc.compiled import checkpoint_tensors, limits_of, model_facts
from dinfc.diagnostics import DinfcError
from dinfc.frontend.config import canonical_json
from dinfc.frontend.model_yaml import Deployment
from dinfc.reference import ReferenceModel
from dinfc.runtime.checkpoint import Checkpoint, ExpectedTensor, open_checkpoint
from dinfc.runtime.errors import RuntimeFault
from dinfc.runtime.plan import ModelFacts
from dinfc.runtime.token_map import load_token_map

_TORCH = {"BF16": torch.bfloat16, "F32": torch.float32}


def as_dinfc(fault: RuntimeFault) -> DinfcError:
    """The runtime's error as one of the compiler: the catalogue is the same."""
    return DinfcError(fault.code, place=Path(fault.place) if fault.place else None, **fault.fields)


def load_reference(deployment: Deployment, weights: Path) -> ReferenceModel:
    """The interpreted model with the weights of a checkpoint folder.

    Raises DinfcError E-CKPT-* for a checkpoint that is not the deployment's.
    """
    expected = [ExpectedTensor(t.name, t.dtype, t.shape, t.role) for t in checkpoint_tensors(deployment)]
    facts = model_facts(deployment)
    try:
        checkpoint = open_checkpoint(weights, expected, json.loads(canonical_json(deployment.config)))
        token_map = load_token_map(weights, ModelFacts(**vars(facts)))
        tensors = {t.name: read_tensor(checkpoint, t) for t in expected if t.role == "backbone"}
    except RuntimeFault as fault:
        raise as_dinfc(fault) from None
    return ReferenceModel(deployment.config, limits_of(deployment), deployment.cache_main, tensors,
                          None if token_map is None else token_map.tolist())


def read_tensor(checkpoint: Checkpoint, expected: ExpectedTensor) -> Tensor:
    """A tensor of the checkpoint; codes and scales as uint8."""
    raw = torch.from_numpy(np.array(checkpoint.read(expected.name)))
    return raw.view(_TORCH.get(expected.dtype, torch.uint8)).reshape(expected.shape)


def read_texts(path: Path, vocab: int, max_len: int) -> list[list[int]]:
    """A JSON list of token id lists. Raises DinfcError E-RUN-001 to 003, 006, 008."""
    from dinfc.runtime.options import read_ids

    try:
        texts = read_ids(path)
    except RuntimeFault as fault:
        raise as_dinfc(fault) from None
    for number, ids in enumerate(texts):
        which = f" #{number}" if len(texts) > 1 else ""
        if not ids:
            raise DinfcError("E-RUN-001", which=which)
        if len(ids) > max_len:
            raise DinfcError("E-RUN-002", which=which, length=len(ids), new=0, limit=max_len)
        for position, token in enumerate(ids):
            if not 0 <= token < vocab:
                raise DinfcError("E-RUN-003", id=token, position=position, vocab=vocab, which=which)
    return texts


def chunks_of(ids: Sequence[int], sizes: Sequence[int], largest: int) -> Iterator[list[int]]:
    """The ids in chunks of the given sizes, repeated cyclically, none longer than `largest`."""
    at = 0
    for size in cycle(sizes or (largest,)):
        if at >= len(ids):
            return
        yield list(ids[at : at + min(size, largest)])
        at += min(size, largest)


def score(model: ReferenceModel, ids: Sequence[int], sizes: Sequence[int]) -> Tensor:
    """fp32 logits [len(ids), V] of one text, chunk by chunk."""
    sequence = model.new_sequence()
    rows = [model.step([(sequence, chunk)])[0] for chunk in chunks_of(ids, sizes, model.limits.max_tokens)]
    model.release(sequence)
    return torch.cat(rows)


def check_writable(path: Path) -> None:
    """Asked before the work is done. Raises DinfcError: E-CLI-004 (it exists), E-BUILD-004 (there is no folder)."""
    if path.exists():
        raise DinfcError("E-CLI-004", path=path)
    if not path.parent.is_dir():
        raise DinfcError("E-BUILD-004", path=path, reason=f"there is no folder {path.parent}")


def write_logits(path: Path, logits: Sequence[Tensor]) -> None:
    """`logits.0`, `logits.1`, ...; the file appears complete or not at all.

    Raises DinfcError: E-CLI-004, E-BUILD-004.
    """
    check_writable(path)
    work = path.with_name(f".{path.name}.partial-{os.getpid()}")
    try:
        save_file({f"logits.{i}": x.contiguous() for i, x in enumerate(logits)}, str(work))
        work.replace(path)
    except (OSError, SafetensorError) as error:
        raise DinfcError("E-BUILD-004", path=path, reason=error) from None
    finally:
        work.unlink(missing_ok=True)
