"""Rewrites the golden kernels with what the CPU emitter prints now: `python tests/golden/accept.py`.

Look at the difference (git diff) before it is committed.
"""
from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from support.golden import golden_files, printed  # noqa: E402


def main() -> None:
    for path in golden_files():
        text = printed(path)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"accepted {path}")


if __name__ == "__main__":
    main()
