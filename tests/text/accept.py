"""Rewrites the expected part of IR test files with what the passes give now: `python tests/text/accept.py [FILE...]`.

Look at the difference (git diff) before it is committed. Files that expect an error are left alone.
"""
from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from support.ir_cases import case_text, read_case, run_case  # noqa: E402


def main(arguments: list[str]) -> None:
    for path in map(Path, arguments) if arguments else sorted(HERE.glob("*.ir")):
        case = read_case(path)
        if case.errors:
            continue
        output = run_case(case)
        if output != case.expected:
            path.write_text(case_text(case, output), encoding="utf-8")
            print(f"accepted {path}")


if __name__ == "__main__":
    main(sys.argv[1:])
