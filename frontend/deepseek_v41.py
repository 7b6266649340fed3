"""The DeepSeek-V4.1-Flash forward pass as a tensor IR module: `prepare`, `forward`, `head` and the layer kinds.

`forward` runs the backbone on a mixed batch of prefill chunks and decode rows and gives the final normed hidden rows;
`head` gives the logits of chosen rows, so that scoring can run it in pieces (design section 4a).
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dinfc.frontend import rope
from dinfc.frontend.layer_kinds import Kind, LayerScope, build_layer, edge_types
from dinfc.frontend.model_config import LayerTraits, ModelConfig
from dinfc.frontend.slots import Slot, global_slots, layer_slots
from dinfc.frontend.states import CacheLayout, cache_layout
from dinfc.frontend.step_metadata import R, T, build_prepare, step_params
from dinfc.ir.build import call, constant, contract, emap, gather_rows, slice_, take, view
from dinfc.ir.graph import Builder, Constant, Function, Module, Value
from dinfc.ir.plan import WeightRecipe
from dinfc.ir.scalar import bf16, compare, const, index, select
from dinfc.ir.types import Limits, StateType, Symbol, TensorType, Type


@dataclass(frozen=True)
class Model:
    """The module, the recipes of its weights, the layout of its caches, the bound of logit rows."""

    module: Module
    recipes: Mapping[str, WeightRecipe]
    layout: CacheLayout
    max_logit_rows: int


def build_model(config: ModelConfig, limits: Limits, cache: str) -> Model:
    """The whole text backbone. `cache`: format of the main cache, fp4 or mxfp8."""
    layout = cache_layout(config, cache)
    rows = min(limits.max_tokens, limits.max_seqs * config.backtrack)
    module = Module(symbols={
        "T": Symbol("T", 1, limits.max_tokens), "S": Symbol("S", 1, limits.max_seqs), "R": Symbol("R", 1, rows)},
        info={"backtrack": config.backtrack})
    for constant_table in tables(config, limits):
        module.constants[constant_table.name] = constant_table
    prepare = build_prepare(module, config, limits, layout.states)
    recipes: dict[str, WeightRecipe] = {}
    build_forward(module, config, limits, layout, prepare, recipes)
    build_head(module, config, recipes)
    return Model(module, recipes, layout, rows)


def table_positions(config: ModelConfig, limits: Limits) -> int:
    """Positions that rotary tables cover: max_len + 3 blocks + 1 (design section 4a)."""
    return limits.max_len + 3 * (config.dspark_block_size or 0) + 1


def tables(config: ModelConfig, limits: Limits) -> list[Constant]:
    """RoPE tables (fp64 here, fp32 in packages) and the Engram hash constants."""
    n, d_r = table_positions(config, limits), config.qk_rope_head_dim
    out = [Constant("rope_window", TensorType("f32", (n, d_r)), rope_maker(config, 0, n))]
    if any(config.ratio(layer) for layer in range(config.num_hidden_layers)):
        out.append(Constant("rope_long", TensorType("f32", (n, d_r)), rope_maker(config, 1, n)))
    orders, heads = len(config.engram_orders), config.engram_n_heads or 0
    for layer in config.engram_layer_ids:
        flat_p = [p for row in config.engram_primes[layer] for p in row]
        flat_o = [o for row in config.engram_offsets[layer] for o in row]
        multipliers = list(config.engram_multipliers[layer])
        out += [
            Constant(f"engram_multipliers_{layer}", TensorType("i64", (len(multipliers),)), fixed(multipliers)),
            Constant(f"engram_primes_{layer}", TensorType("i64", (orders, heads)), fixed(flat_p)),
            Constant(f"engram_offsets_{layer}", TensorType("i64", (orders, heads)), fixed(flat_o)),
        ]
    return out


def rope_maker(config: ModelConfig, ratio: int, n: int) -> Callable[[], Sequence[float]]:
    def make() -> Sequence[float]:
        values: Sequence[float] = rope.cos_sin(config, ratio, n).reshape(-1).tolist()
        return values

    return make


def fixed(values: list[int]) -> Callable[[], Sequence[int]]:
    return lambda: values


def layer_kind(config: ModelConfig, layer: int) -> Kind:
    """The kind of a layer; being a draft target changes nothing before drafts are compiled."""
    t = config.traits(layer)
    traits = LayerTraits(t.ratio, t.is_kv_source, t.is_index_source, t.is_index_k_source, t.is_candidate_source,
                         t.is_candidate_consumer, t.has_engram, False)
    last = layer == config.num_hidden_layers - 1
    tail = "final" if last else "raw" if config.has_engram(layer + 1) else "mix"
    return Kind(traits, t.has_engram or layer == 0, tail, config.engram_rows[layer] if t.has_engram else 0)


def state_names(config: ModelConfig, layer: int) -> dict[str, str]:
    """Role -> name of the states that a layer may touch."""
    out = {"window": f"window_{layer}"}
    source, index_source = config.kv_source(layer), config.index_k_source(layer)
    if source is not None:
        out["main"] = f"main_{source}"
        if config.is_kv_source(layer) and config.ratio(layer) == 2:
            out["latent"] = f"latent_{layer}"
    if index_source is not None:
        out["index"] = f"index_{index_source}"
    return out


def build_forward(module: Module, config: ModelConfig, limits: Limits, layout: CacheLayout, prepare: Function,
                  recipes: dict[str, WeightRecipe]) -> Function:
    """`forward(ids, page_table, metadata, states, weights) -> (hidden, changed states)`."""
    function = Function("forward", [])
    b = Builder(function, module)
    env: dict[str, Value] = {}
    step = step_params(limits)
    metadata = {r.name: r.type for r in prepare.results if isinstance(r.type, TensorType)}

    def param(name: str, type_: Type) -> Value:
        if name not in env:
            env[name] = Value(name, type_)
            b.names.add(name)
            function.params.append(env[name])
        return env[name]

    def weight(name: str, slot: Slot, prefix: str) -> Value:
        recipes.setdefault(name, slot.recipe(name, prefix))
        return param(name, slot.type)

    ids = param("ids", step["ids"])
    param("page_table", step["page_table"])
    for name, type_ in metadata.items():
        param(name, type_)
    states: dict[str, Value] = {n: param(n, t) for n, t in layout.states.items() if n != "history"}
    general = global_slots(config)
    edge = open_streams(b, config, ids, weight("embed.weight", general["embed.weight"], ""))
    kinds: dict[Kind, tuple[Function, tuple[str, ...]]] = {}
    for layer in range(config.num_hidden_layers):
        kind = layer_kind(config, layer)
        slots = layer_slots(config, layer)
        following = layer_slots(config, layer + 1) if kind.tail == "mix" else {}
        if config.has_engram(layer):
            token_map = weight("engram.token_map", general["engram.token_map"], "")
            edge["engram_rows"] = engram_rows(b, config, layer, env["gram_ids"], token_map)
        names = state_names(config, layer)
        if kind not in kinds:
            kinds[kind] = new_kind(module, config, kind, slots, following, {**step, **metadata},
                                   {role: layout.states[n] for role, n in names.items()}, edge)
        callee, roles = kinds[kind]
        args = []
        for p in callee.params:
            if p.name == "final.norm":
                args.append(weight("norm.weight", general["norm.weight"], ""))
            elif p.name.startswith("next."):
                local = p.name.removeprefix("next.")
                args.append(weight(f"layers.{layer + 1}.{local}", following[local], f"layers.{layer + 1}."))
            elif p.name in slots:
                args.append(weight(f"layers.{layer}.{p.name}", slots[p.name], f"layers.{layer}."))
            elif p.name in names:
                args.append(states[names[p.name]])
            else:
                args.append(edge[p.name] if p.name in edge else env[p.name])
        b.loc = f"layers.{layer}"
        results = call(b, callee, args, [f"{role}_l{layer}" for role in roles])
        for role, value in zip(roles, results, strict=True):
            if isinstance(value.type, StateType):
                states[names[role]] = value
            else:
                edge[role] = value
    hidden = edge["hidden"]
    hidden.name = "hidden"
    function.results = [hidden, *states.values()]
    module.functions["forward"] = function
    return function


def open_streams(b: Builder, config: ModelConfig, ids: Value, table: Value) -> dict[str, Value]:
    """X = the embedding on every stream, the first mix one-hot on stream 0 (spec 1.1)."""
    m, width = config.hc_mult, config.hidden_size
    embedded = gather_rows(b, ids, table, hint="embedded")
    x = emap(b, bf16, [embedded], dims=[(0, 2)], shape=(T, m, width), hint="X")
    pre = emap(b, lambda: select(compare("eq", index(1), 0), const(1.0), 0.0), [], shape=(T, m), hint="pre")
    return {"X": x, "pre": pre}


def engram_rows(b: Builder, config: ModelConfig, layer: int, grams: Value, token_map: Value) -> Value:
    """Table rows of a layer from the raw ids of `prepare` (spec 4.2, 4.3)."""
    compressed = take(b, token_map, [grams], fill=-1, hint=f"compressed_{layer}")
    tables_ = [constant(b, f"engram_{n}_{layer}") for n in ("multipliers", "primes", "offsets")]
    # the pad's compressed id is only known with the tokenizer's map: it is read, not baked in
    pad_id = config.engram_pad_token_id or 0
    pad = view(b, slice_(b, token_map, 0, pad_id, pad_id + 1), (), hint=f"pad_{layer}")
    return b.one("engram_hash", [compressed, *tables_, pad], f"engram_rows_{layer}", rows=config.engram_rows[layer])


def new_kind(module: Module, config: ModelConfig, kind: Kind, slots: Mapping[str, Slot], following: Mapping[str, Slot],
             metadata: Mapping[str, Type], states: Mapping[str, StateType],
             edge: Mapping[str, Value]) -> tuple[Function, tuple[str, ...]]:
    """Builds a layer function; also the roles of its results."""
    base = kind.name()
    name, n = base, 2
    while name in module.functions:
        name, n = f"{base}_{n}", n + 1
    function = Function(name, [])
    types: dict[str, Type] = {**metadata, **edge_types(config)}
    if "cand" in edge:
        types["cand"] = edge["cand"].type
    scope = LayerScope(Builder(function, module), config, kind, slots, following, types, states)
    roles = build_layer(config, kind, scope)
    module.functions[name] = function
    return function, roles


def build_head(module: Module, config: ModelConfig, recipes: dict[str, WeightRecipe]) -> Function:
    """`head(hidden, logit_rows, head.weight) -> logits f32 [R, V]` (spec 1.1)."""
    slot = global_slots(config)["head.weight"]
    recipes["head.weight"] = slot.recipe("head.weight", "")
    hidden = Value("hidden", TensorType("bf16", (T, config.hidden_size)))
    rows = Value("logit_rows", TensorType("i32", (R,)))
    weight = Value("head.weight", slot.type)
    function = Function("head", [hidden, rows, weight])
    b = Builder(function, module)
    chosen = gather_rows(b, rows, hidden, hint="chosen")
    function.results = [contract(b, chosen, weight, "GB32", hint="logits")]
    module.functions["head"] = function
    return function
