#!/usr/bin/env bash
# Runs the GPU test on a host that has torch, nvcc and g++ but no network: `tests/gpu/offline.sh BUNDLE.tar.xz`, from the
# repository's root. BUNDLE holds the Python packages of TileLang as a site folder.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/site" "$work/stage"
tar xJf "$1" -C "$work/site"
cp -r dinfc "$work/stage/"
cp -r ir passes codegen targets "$work/stage/dinfc/"
PYTHONPATH="$work/stage:$work/site" TILELANG_CACHE_DIR="$work/cache" python3 tests/gpu/test_sm90_slice.py
