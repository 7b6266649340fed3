"""What this machine offers: CPU instruction sets, compilers, installed libraries. Nothing here decides anything."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

# Flags of /proc/cpuinfo that each instruction set of `--cpu-isa` needs, best first.
ISA_FLAGS: dict[str, frozenset[str]] = {
    "avx512": frozenset({"avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl"}),
    "avx2": frozenset({"avx2", "fma"}),
}
NOTABLE_FLAGS = (
    "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16",
    "amx_tile", "amx_bf16", "amx_int8",
)  # fmt: skip


def cpu_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """Feature flags of the first CPU as Linux names them; empty where there is no such file."""
    try:
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    match = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    return frozenset(match[1].split()) if match else frozenset()


def host_isa(flags: frozenset[str] | None = None) -> str | None:
    """The best of `ISA_FLAGS` that this machine (or one with `flags`) runs; None if none."""
    have = cpu_flags() if flags is None else flags
    return next((isa for isa, needed in ISA_FLAGS.items() if needed <= have), None)


def find_cxx() -> str | None:
    """Path of the C++ compiler: $CXX where it is set, else g++; None if there is none."""
    return shutil.which(os.environ.get("CXX") or "g++")


def find_nvcc() -> str | None:
    """Path of nvcc on PATH, under $CUDA_HOME or in /usr/local/cuda; None if there is none."""
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    return shutil.which("nvcc") or shutil.which(str(Path(home, "bin", "nvcc")))


def tool_version(path: str) -> str:
    """The line of `path --version` that holds a version number, or a note that it does not run."""
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return f"does not run: {error}"
    lines = [line.strip() for line in done.stdout.splitlines() if re.search(r"\d+\.\d+", line)]
    return lines[0] if lines else done.stdout.strip().split("\n")[0]


def package_version(name: str) -> str | None:
    """Installed version of a Python distribution, without importing it; None if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def describe() -> str:
    """Operating system and Python, one line."""
    return f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
