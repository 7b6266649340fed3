"""What `dinfc compile` prints about a deployment: checkpoint, caches, state, scratch, kernels."""

from __future__ import annotations

from collections import Counter

from dinfc.compiled import Compiled
from dinfc.frontend.checkpoint import expected_tensors, summarize
from dinfc.frontend.model_config import PAGE_TOKENS

KIB, MIB, GIB = 2**10, 2**20, 2**30


def size(n: float) -> str:
    """Bytes for people: 890 B, 13.9 MiB, 475.24 GiB."""
    if n < 10 * KIB:
        return f"{n:.0f} B"
    unit, name = (GIB, "GiB") if n >= GIB else (MIB, "MiB") if n >= MIB else (KIB, "KiB")
    return f"{n / unit:.2f} {name}"


def deployment_summary(compiled: Compiled) -> list[str]:
    """Checkpoint and caches: they depend on the configuration alone."""
    config, layout = compiled.deployment.config, compiled.model.layout
    checkpoint = summarize(expected_tensors(config))
    vision = " with vision" if checkpoint.tensors_by_role.get("vision") else ""
    lines = [f"checkpoint   {checkpoint.tensors:,} tensors, {size(checkpoint.nbytes)}{vision}"]
    if layout.page_bytes:
        lines.append(
            f"pages        payload {round(layout.payload_per_token)} B a token; allocated {layout.page_bytes:,} B "
            f"a page of {PAGE_TOKENS} tokens = {round(layout.page_bytes / PAGE_TOKENS)} B a token"
        )
    drafts = ", those of the draft layers included" if config.num_nextn_predict_layers else ""
    lines.append(f"rings        {layout.ring_slot_bytes:,} B a slot{drafts}")
    return lines


def plan_summary(compiled: Compiled) -> list[str]:
    """State, scratch, weights and kernels of the plan; nothing where the passes were stopped before there is one."""
    context = compiled.context
    if context.plan is None:
        return [f"kernels      {len(context.programs)}"] if context.programs else []
    plan, buckets = context.plan, compiled.limits.buckets
    slots, page = plan.memory["rings"], plan.memory["page"]
    anchors = Counter(p.anchor for p in plan.programs.values())
    scratch = ", ".join(f"{size(b)} for {rows} rows" for rows, b in zip(buckets, plan.arena_bytes, strict=True))
    lines = [
        f"state        {slots:,} B a slot of {sum(s.kind == 'ring' for s in plan.states)} rings, {page:,} B a page",
        f"scratch      {scratch}",
        f"weights      {size(plan.memory['weights'])} packed in {len(plan.weights)} buffers, "
        f"tables {size(plan.memory['constants'])}",
        f"kernels      {len(plan.programs)} ({', '.join(f'{n} {a}' for a, n in sorted(anchors.items()))})",
        f"launches     {', '.join(f'{last - first} {name}' for name, (first, last) in plan.entries.items())}",
    ]
    for reason, count in Counter(loop.reason for loop in plan.loops).items():
        lines.append(f"row chunks   {count} loop{'s' if count > 1 else ''}: {reason}")
    return lines
