"""From TileLang text to a device's source and machine code, without a device.

TileLang is imported here only, when something is lowered. Its text is not executed from a string: a prim_func reads its
own source, so the text is registered under a file name first.
"""
from __future__ import annotations

import importlib.util
import linecache
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dinfc.codegen.schedules.device_walk import DeviceError

# The dialects of this project stage and synchronise explicitly.
PASS_CONFIG: Mapping[str, bool] = {"tl.disable_warp_specialized": True, "tl.disable_tma_lower": True}
MNEMONIC = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*(?:\.[A-Za-z0-9_]+)*)", re.M)
PTXAS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers", re.S)


@dataclass(frozen=True)
class Lowered:
    """Device source of one kernel; `entry`: its symbol, `shared`: bytes of dynamic shared memory, `host`: the launcher
    source around it, "" where none was asked for."""

    entry: str
    source: str
    shared: int
    host: str = ""


@dataclass(frozen=True)
class Binary:
    """What the assembler said of a kernel. `instructions`: counts by mnemonic, None where no disassembler is there."""

    registers: int
    spilled: int
    instructions: Mapping[str, int] | None = field(default=None)


def tilelang_missing() -> bool:
    return importlib.util.find_spec("tilelang") is None


def nvcc() -> str | None:
    """The CUDA compiler, from PATH or its usual place."""
    usual = "/usr/local/cuda/bin/nvcc"
    return shutil.which("nvcc") or (usual if os.access(usual, os.X_OK) else None)


def disassembler() -> str | None:
    """nvdisasm, from PATH, the toolkit, or the Python package nvidia-cuda-nvdisasm."""
    if found := shutil.which("nvdisasm"):
        return found
    places = [Path("/usr/local/cuda/bin/nvdisasm")]
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or []) if spec else []:
        places += sorted(Path(root).glob("*/bin/nvdisasm"))
    return next((str(p) for p in places if os.access(p, os.X_OK)), None)


def load_text(text: str, name: str, file: str) -> Any:
    """The prim_func that the text defines. Raises DeviceError where TileLang refuses it."""
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    space: dict[str, object] = {}
    try:
        exec(compile(text, file, "exec"), space)
    except Exception as error:
        raise DeviceError(f"TileLang refuses {file}: {_first_line(error)}") from error
    return space[name]


def lower(text: str, name: str, target: str | Mapping[str, str], launcher: bool = False) -> Lowered:
    """Device source of the kernel that the text defines. `target`: TileLang's own spelling.

    Raises DeviceError where TileLang is not installed or refuses the text.
    """
    if tilelang_missing():
        raise DeviceError("TileLang is not installed")
    os.environ.setdefault("TILELANG_PRINT_ON_COMPILATION", "0")
    import tilelang
    import tvm
    from tilelang.backend import create_backend_context

    function = load_text(text, name, f"{name}.py")
    spelled = dict(target) if not isinstance(target, str) else target
    context = create_backend_context(spelled)
    config = dict(PASS_CONFIG) if not isinstance(target, str) else {}
    try:
        with tvm.transform.PassContext(opt_level=3, config=config), context.target:
            artefact = tilelang.lower(function, target=context.target)
    except Exception as error:
        raise DeviceError(f"TileLang cannot lower {name}: {_first_line(error)}") from error
    shared, entry = 0, name
    for symbol, device in artefact.device_mod.functions.items():
        entry = str(symbol.name_hint)
        shared = max(shared, int(dict(device.attrs).get("dyn_shared_memory_buf", 0)))
    host = ""
    if launcher:
        from tilelang.jit.adapter.wrapper import TLWrapper

        wrapper = TLWrapper(context.target)
        wrapper.assign_optimized_module(tvm.IRModule({function.attrs["global_symbol"]: function}))
        wrapper.assign_pass_configs(config)
        wrapper.assign_host_module(artefact.host_mod)
        wrapper.assign_device_module(artefact.device_mod)
        host = str(wrapper.wrap(artefact.kernel_source))
    return Lowered(entry, str(artefact.kernel_source), shared, host)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def include_flags() -> list[str]:
    """Where the device templates of TileLang are."""
    import tilelang

    root = Path(str(tilelang.__file__)).parent
    return [f"-I{root / 'src'}", f"-I{root / '3rdparty' / 'cutlass' / 'include'}"]


def compile_flags(arch: str) -> list[str]:
    """Sums and products are not contracted: fma is written where it is meant."""
    number = arch.removeprefix("sm_")
    return ["-std=c++20", "-w", "-O3", "-fmad=false", f"-gencode=arch=compute_{number},code=sm_{number}",
            *include_flags()]


def compile_cubin(source: Path, arch: str, cubin: Path) -> Binary:
    """Compiles CUDA source to a cubin. Raises DeviceError where nvcc is absent or refuses it."""
    compiler = nvcc()
    if compiler is None:
        raise DeviceError("nvcc is not installed")
    command = [compiler, "-cubin", "-Xptxas", "-v", *compile_flags(arch), source.name, "-o", cubin.name]
    done = subprocess.run(command, capture_output=True, text=True, cwd=source.parent, check=False)
    if done.returncode:
        raise DeviceError(f"nvcc refuses {source.name}: {done.stderr.strip()[-400:]}")
    if cubin.parent != source.parent:
        shutil.move(source.parent / cubin.name, cubin)
    found = PTXAS.search(done.stderr)
    if found is None:
        raise DeviceError(f"ptxas said nothing of {source.name}")
    stores, loads, registers = (int(n) for n in found.groups())
    return Binary(registers, stores + loads, disassemble(cubin))


def disassemble(cubin: Path) -> Mapping[str, int] | None:
    """Instruction counts of a cubin by mnemonic."""
    tool = disassembler()
    if tool is None:
        return None
    done = subprocess.run([tool, "-c", str(cubin)], capture_output=True, text=True, check=True)
    return Counter(MNEMONIC.findall(done.stdout))


def has_instruction(counts: Mapping[str, int], stem: str) -> bool:
    """Is any form of the instruction there (UTCHMMA.WS is a form of UTCHMMA)?"""
    return any(name == stem or name.startswith(stem + ".") for name in counts)
