"""A model through all passes and into a kernel library, for tests; made once a process, objects are cached."""
from __future__ import annotations

import ctypes
import os
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from dinfc.codegen.emit.cpu_build import build_library
from dinfc.codegen.emit.cpu_sources import library_sources
from dinfc.frontend.deepseek_v41 import Model, build_model
from dinfc.frontend.model_yaml import Deployment, load_model_yaml
from dinfc.ir.graph import Module
from dinfc.ir.types import Limits
from dinfc.passes.base import Context
from dinfc.pipeline import Run, load_target, run_pipeline

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(tempfile.gettempdir()) / f"dinfc-test-cache-{os.getuid()}"


@dataclass(frozen=True)
class ScheduledModel:
    """A model after `schedule`: every region has a kernel."""

    deployment: Deployment
    limits: Limits
    model: Model
    module: Module
    context: Context


@lru_cache(maxsize=4)
def scheduled_model(example: str) -> ScheduledModel:
    """`example`: a file of examples/ without its ending."""
    deployment = load_model_yaml(ROOT / "examples" / f"{example}.yaml", ("cpu",), target="cpu", cpu_isa="avx2",
                                 host_isa="avx2")
    limits = Limits(deployment.max_seqs, deployment.max_tokens, deployment.max_len, deployment.score_bytes,
                    tuple(deployment.buckets))
    model = build_model(deployment.config, limits, deployment.cache_main)
    context = Context(load_target("cpu", "avx2"), limits, model.max_logit_rows, dict(model.recipes))
    module = run_pipeline(model.module, context, run=Run(stop_after="schedule"))
    return ScheduledModel(deployment, limits, model, module, context)


@lru_cache(maxsize=8)
def kernel_library(example: str, checked: bool) -> ctypes.CDLL:
    """All kernels of an example, callable by name."""
    sources = library_sources(list(scheduled_model(example).context.programs.values()), checked)
    visible = {name: text.replace('extern "C" void', 'extern "C" __attribute__((visibility("default"))) void')
               for name, text in sources.items()}
    place = Path(tempfile.mkdtemp(prefix="dinfc-kernels-")) / "kernels.so"
    library = ctypes.CDLL(str(build_library(visible, place, checked=checked, cache=CACHE)))
    library.dinfc_last_error.restype = ctypes.c_char_p
    return library
