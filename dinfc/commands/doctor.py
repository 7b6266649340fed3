"""`dinfc doctor`: what this machine offers, for bug reports and before a first compile."""

from __future__ import annotations

import os

import click

from dinfc import host


@click.command("doctor")
def command() -> None:
    """Show Python, compilers, CPU features and installed libraries."""
    flags = host.cpu_flags()
    cxx, nvcc = host.find_cxx(), host.find_nvcc()
    isa = host.host_isa(flags)
    rows = [
        ("system", host.describe()),
        ("cores", str(len(os.sched_getaffinity(0)))),
        ("cpu features", " ".join(flag for flag in host.NOTABLE_FLAGS if flag in flags) or "unknown"),
        ("cpu isa", isa or "none: kernels for this machine need AVX2 with FMA"),
        ("C++ compiler", f"{cxx}: {host.tool_version(cxx)}" if cxx else "none: `dinfc compile --no-build` still works"),
        ("nvcc", f"{nvcc}: {host.tool_version(nvcc)}" if nvcc else "none: NVIDIA targets stop at their sources"),
    ]
    for package in ("torch", "numpy", "tokenizers", "safetensors", "tilelang", "apache-tvm-ffi"):
        rows.append((package, host.package_version(package) or "not installed"))
    for name, value in rows:
        click.echo(f"{name:<16} {value}")
