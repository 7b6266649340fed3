"""Layers of one kind share kernels but not caches: every launch must get the page section of its own source layer."""
from __future__ import annotations

import re
from functools import lru_cache

from dinfc.ir.plan import Plan
from dinfc.passes.base import Context
from dinfc.pipeline import load_target, run_pipeline
from support.compiled_model import scheduled_model


@lru_cache(maxsize=1)
def full_size_plan() -> Plan:
    compiled = scheduled_model("v41-flash")
    context = Context(load_target("cpu", "avx2"), compiled.limits, compiled.model.max_logit_rows,
                      dict(compiled.model.recipes))
    run_pipeline(compiled.model.module, context)
    assert context.plan is not None
    return context.plan


def section_offsets(plan: Plan, layer: int) -> set[int]:
    """Offsets in the page pool that the launches of a layer are given."""
    pool = next(i for i, s in enumerate(plan.states) if s.kind == "pages")
    of_layer = re.compile(rf"layers\.{layer}\b")
    return {r.offsets[0] for launch in plan.launches if of_layer.search(launch.origin) for r in launch.args
            if r.space == "state" and r.index == pool}


def test_each_layer_reads_the_sections_of_its_own_sources() -> None:
    compiled = scheduled_model("v41-flash")
    config, states = compiled.deployment.config, compiled.model.layout.states
    plan = full_size_plan()
    seen = set()
    for layer in range(config.num_hidden_layers):
        found = section_offsets(plan, layer)
        if config.ratio(layer) == 0:
            assert found == set()
            continue
        source = config.kv_source(layer)
        allowed = {states[f"main_{source}"].offset}
        if config.is_index_source(layer):
            allowed.add(states[f"index_{config.index_k_source(layer)}"].offset)
        assert states[f"main_{source}"].offset in found, layer
        assert found <= allowed, layer
        seen |= found
    assert seen == {s.offset for s in states.values() if s.kind == "pages"}


def test_two_layers_of_one_kind_read_different_sections() -> None:
    """The case that a section offset inside a kernel would get wrong."""
    compiled = scheduled_model("v41-flash")
    plan = full_size_plan()
    by_kernel: dict[str, set[int]] = {}
    pool = next(i for i, s in enumerate(plan.states) if s.kind == "pages")
    for launch in plan.launches:
        for r in launch.args:
            if r.space == "state" and r.index == pool:
                by_kernel.setdefault(launch.kernel, set()).add(r.offsets[0])
    assert max(map(len, by_kernel.values())) > 1
    assert len(compiled.context.programs) < 120
