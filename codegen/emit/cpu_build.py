"""Compiling generated C++ into one shared library: in parallel, cached by content, the same bytes every time.

The bytes depend on the sources, the instruction set, the kind of build and the compiler only: never on the number of
jobs, the folder or the machine's cores. Hence relative names in a temporary folder, a random seed per file, no build
id, sorted link order, and a number of translation units that the emitter fixes (`cpu_sources.UNITS`).
"""
from __future__ import annotations

import hashlib
import os
import secrets
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

COMPILER = "g++"
# No member of the fast-math family: results would depend on the compiler's mood. -fno-math-errno and
# -fno-trapping-math change no value; without the first, sqrt would call libm.
FLAGS = ("-std=c++17", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fopenmp", "-fopenmp-simd",
         "-fno-strict-aliasing", "-fvisibility=hidden", "-fPIC", "-fno-exceptions", "-fno-rtti", "-Wall",
         "-Wno-unknown-pragmas",
         "-Wno-unused-variable", "-Wno-unused-but-set-variable", "-Wno-psabi")
ISA_FLAGS = {
    "avx2": ("-mavx2", "-mfma", "-mf16c"),
    "avx512": ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma", "-mf16c"),
}
LINK_FLAGS = ("-shared", "-fopenmp", "-Wl,--build-id=none", "-Wl,-s")
# What a kernel library may take from elsewhere: memory routines, thread-local storage, OpenMP, the C start-up code.
ALLOWED_SYMBOLS = frozenset(
    {"memcpy", "memset", "memmove", "memcmp", "__tls_get_addr", "__stack_chk_fail", "__cxa_finalize", "__gmon_start__",
     "_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable", "abort"})
ALLOWED_PREFIXES = ("GOMP_", "omp_")
DIGEST_BYTES = hashlib.sha256().digest_size  # in front of every cached object


class BuildError(Exception):
    """`kind`: no-compiler | isa | compile | link | symbols. The message is for a compiler developer; the command line
    maps the kind to the catalogue."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def default_cache() -> Path | None:
    """`$XDG_CACHE_HOME/dinfc` or `~/.cache/dinfc`; None for a user without a home (containers have such)."""
    if given := os.environ.get("XDG_CACHE_HOME"):
        return Path(given) / "dinfc"
    try:
        return Path.home() / ".cache" / "dinfc"
    except RuntimeError:
        return None


def compile_flags(isa: str, checked: bool) -> tuple[str, ...]:
    if isa not in ISA_FLAGS:
        raise BuildError("isa", f"unknown instruction set {isa!r}; known: {', '.join(ISA_FLAGS)}")
    return ("-O1" if checked else "-O3", *FLAGS, *ISA_FLAGS[isa])


def compile_command(name: str, isa: str, checked: bool) -> list[str]:
    """The command that compiles one translation unit in the folder of its sources."""
    return [COMPILER, *compile_flags(isa, checked), f"-frandom-seed={name}", "-c", name, "-o", object_name(name)]


def link_command(names: Iterable[str], out: str) -> list[str]:
    return [COMPILER, *LINK_FLAGS, "-o", out, *(object_name(n) for n in sorted(names))]


def object_name(name: str) -> str:
    return name.removesuffix(".cc") + ".o"


def units(sources: Mapping[str, str]) -> list[str]:
    return sorted(n for n in sources if n.endswith(".cc"))


def build_library(sources: Mapping[str, str], out: Path, isa: str = "avx2", jobs: int = 2, checked: bool = False,
                  cache: Path | None = None) -> Path:
    """Compiles every `.cc` of `sources` (file name -> text; `.h` files lie beside them) and links `out`.

    `cache`: folder of objects by content hash (None: none); in whatever state it is, the result is the same. Raises
    BuildError, and OSError where `out` cannot be written.
    """
    version = compiler_version()
    with tempfile.TemporaryDirectory(prefix="dinfc-build-") as folder:
        work = Path(folder)
        for name, text in sources.items():
            (work / name).write_text(text)
        headers = "".join(f"{n}\n{sources[n]}" for n in sorted(sources) if not n.endswith(".cc"))

        def compile_one(name: str) -> None:
            command = compile_command(name, isa, checked)
            key = hashlib.sha256("\0".join([version, *command, headers, sources[name]]).encode()).hexdigest()
            stored, made = (cache / f"{key}.object" if cache is not None else None), work / object_name(name)
            if stored is not None and (found := _cached(stored)) is not None:
                made.write_bytes(found)
                return
            _run(command, work, "compile", name)
            if stored is not None:
                data = made.read_bytes()
                with suppress(OSError):  # a cache that cannot be written only costs time
                    _write(stored, hashlib.sha256(data).digest() + data)

        with ThreadPoolExecutor(max(1, jobs)) as pool:
            list(pool.map(compile_one, units(sources)))
        _run(link_command(units(sources), "library.so"), work, "link", out.name)
        _write(out, (work / "library.so").read_bytes())
    return out


def compiler_version() -> str:
    """First line of `g++ --version`. Raises BuildError where there is no g++."""
    if shutil.which(COMPILER) is None:
        raise BuildError("no-compiler", f"{COMPILER} is not on the PATH: install it, or compile on another machine "
                         "with build.sh (compile --no-build)")
    done = subprocess.run([COMPILER, "--version"], capture_output=True, text=True, check=False)
    return done.stdout.splitlines()[0] if done.stdout else ""


def _cached(stored: Path) -> bytes | None:
    """A cached object; None where there is none, or where its bytes are not those that were stored: a disk that was
    full or is damaged must cost a compilation, not change a kernel."""
    try:
        data = stored.read_bytes()
    except OSError:
        return None
    digest, found = data[:DIGEST_BYTES], data[DIGEST_BYTES:]
    return found if hashlib.sha256(found).digest() == digest else None


def _write(place: Path, data: bytes) -> None:
    """Writes under a temporary name first: another process may be reading or writing the same place. The name is
    random, since processes of two containers that share a folder may have the same number. Raises OSError."""
    place.parent.mkdir(parents=True, exist_ok=True)
    temporary = place.with_name(f".{place.name}.{secrets.token_hex(8)}")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, place)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def _run(command: list[str], folder: Path, kind: str, what: str) -> None:
    # The locale would change nothing but messages; the source date would change __DATE__, which no source uses.
    env = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=env, check=False)
    if done.returncode:
        raise BuildError(kind, f"{kind} of {what} failed:\n{shlex.join(command)}\n{done.stderr[-4000:]}")


def undefined_symbols(library: Path) -> list[str]:
    """Names that the library expects from elsewhere, without their versions."""
    done = subprocess.run(["nm", "-D", "--undefined-only", str(library)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError("symbols", f"nm {library}: {done.stderr.strip()}")
    return sorted({line.split()[-1].split("@")[0] for line in done.stdout.splitlines() if line.split()})


def check_symbols(library: Path) -> None:
    """Refuses a library that would call libm, libmvec or anything else whose results vary between machines."""
    foreign = [n for n in undefined_symbols(library)
               if n not in ALLOWED_SYMBOLS and not n.startswith(ALLOWED_PREFIXES)]
    if foreign:
        raise BuildError("symbols", f"{library.name} takes {', '.join(foreign)} from another library")


def build_script(sources: Mapping[str, str], out: str, isa: str = "avx2", checked: bool = False) -> str:
    """Text of build.sh: the same commands, to be run in the folder of the sources where a compiler is at hand."""
    names = units(sources)
    compiles = [f"{shlex.join(compile_command(n, isa, checked))} &\npids=\"$pids $!\"" for n in names]
    return "\n".join([
        "#!/bin/sh", "# Compiles the kernels of this package; run it in the folder of the sources.", "set -e",
        'cd "$(dirname "$0")"', 'pids=""', *compiles, 'for pid in $pids; do wait "$pid"; done',
        shlex.join(link_command(names, out)), f"rm -f {shlex.join(object_name(n) for n in names)}", ""])
