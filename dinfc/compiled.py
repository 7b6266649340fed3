"""From a deployment to a package: the whole compiler behind one function, for the command line and for tests."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dinfc.catalogue import runtime_slice
from dinfc.codegen.emit.cpu_build import BuildError
from dinfc.codegen.package import BuildOptions, PackageInput, write_package
from dinfc.codegen.plan_json import ExpectedTensor, ModelFacts
from dinfc.diagnostics import DinfcError
from dinfc.frontend.checkpoint import expected_tensors
from dinfc.frontend.config import canonical_json
from dinfc.frontend.deepseek_v41 import Model, build_model
from dinfc.frontend.model_yaml import Deployment, canonical_yaml
from dinfc.ir.graph import Module
from dinfc.ir.types import Limits
from dinfc.ir.verify import verify_module
from dinfc.output import check_vacant, fresh_folder
from dinfc.passes.base import Context
from dinfc.pipeline import STANDARD, Run, load_target, run_pipeline

# What a disk, not a defect, answers when a file is written.
DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO})


class Phases(Protocol):
    """Tells of progress (`Session` does)."""

    def phase(self, name: str) -> AbstractContextManager[None]: ...


@dataclass
class Compiled:
    """A deployment on its way: the model's tensor IR, then the lowered module and what the passes noted."""

    deployment: Deployment
    limits: Limits
    model: Model
    module: Module
    context: Context

    @property
    def isa(self) -> str:
        return self.deployment.cpu_isa or "avx2"


def limits_of(deployment: Deployment) -> Limits:
    return Limits(deployment.max_seqs, deployment.max_tokens, deployment.max_len, deployment.score_bytes,
                  tuple(deployment.buckets))


def compile_deployment(deployment: Deployment, phases: Phases, run: Run | None = None) -> Compiled:
    """Builds the model and runs the passes (to the end, or to `run.stop_after`).

    Raises DinfcError: E-TARGET-*, E-PLAN-*, E-CLI-021.
    """
    target = load_target(deployment.target, deployment.cpu_isa or "")
    limits = limits_of(deployment)
    with phases.phase("tensor IR"):
        model = build_model(deployment.config, limits, deployment.cache_main)
        verify_module(model.module)
    context = Context(target, limits, model.max_logit_rows, dict(model.recipes))
    with phases.phase("passes"):
        module = run_pipeline(model.module, context, STANDARD, run)
    return Compiled(deployment, limits, model, module, context)


def write(compiled: Compiled, output: Path, options: BuildOptions, phases: Phases) -> None:
    """Writes the package; `output` appears complete or not at all.

    Raises DinfcError: E-BUILD-001 (no compiler), 002 to 004 (output; 004 also for a disk that gets full), 005 (the
    compiler refused the sources).
    """
    check_vacant(output)
    try:
        with fresh_folder(output) as folder, phases.phase("package"):
            write_package(folder, package_input(compiled), options)
    except BuildError as error:
        if error.kind == "no-compiler":
            raise DinfcError("E-BUILD-001", looked="g++") from None
        raise DinfcError("E-BUILD-005", kind=error.kind, reason=str(error)) from error
    except OSError as error:
        if error.errno not in DISK_ERRORS:
            raise
        raise DinfcError("E-BUILD-004", path=output, reason=error.strerror) from None


def package_input(compiled: Compiled) -> PackageInput:
    """What the package writer takes. The plan must be complete."""
    plan, deployment = compiled.context.plan, compiled.deployment
    assert plan is not None
    return PackageInput(
        plan, compiled.module, model_facts(deployment), compiled.isa, deployment.memory_fraction,
        [p.name for p in STANDARD], list(checkpoint_tensors(deployment)), canonical_yaml(deployment),
        canonical_json(deployment.config), runtime_slice())


def model_facts(deployment: Deployment) -> ModelFacts:
    config = deployment.config
    engram = bool(config.engram_layer_ids)
    return ModelFacts(
        deployment.model, config.vocab_size, config.bos_token_id, config.eos_token_id, config.pad_token_id,
        config.backtrack, (config.engram_pad_token_id or 0) if engram else 0,
        (config.engram_compressed_vocab_size or 0) if engram else 0)


def checkpoint_tensors(deployment: Deployment) -> Iterator[ExpectedTensor]:
    for t in expected_tensors(deployment.config):
        yield ExpectedTensor(t.name, t.dtype, t.shape, t.role)
