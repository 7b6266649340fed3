"""Writes the derived example files, from examples/tiny-test/config.json (spec §12.2, verbatim):

- tiny/: the same model for real text, with a byte-level tokenizer.json; V_c is what that tokenizer's token map has;
- production-shape/: the widths that production kernels accept (end of §12.2).

Run from anywhere: `.venv/bin/python examples/make_examples.py [FOLDER]`; a test holds that the committed files are
what this writes.
"""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path

from dinfc.frontend.config import config_from_json
from dinfc.frontend.token_map import map_of_tokenizer
from dinfc.frontend.tokenizer import byte_level_json

HERE = Path(__file__).parent
PRODUCTION_WIDTHS = {
    "hidden_size": 256,
    "head_dim": 512,
    "qk_rope_head_dim": 64,
    "num_attention_heads": 64,
    "index_head_dim": 128,
    "engram_head_dim": 128,
    "moe_intermediate_size": 128,
    "sliding_window": 128,
}


def main(folder: Path = HERE) -> None:
    """Writes tiny/ and production-shape/ under `folder`."""
    base = json.loads((HERE / "tiny-test" / "config.json").read_text(encoding="utf-8"))

    tiny = folder / "tiny"
    tiny.mkdir(parents=True, exist_ok=True)
    (tiny / "tokenizer.json").write_text(byte_level_json(config_from_json(base)), encoding="utf-8")
    text = copy.deepcopy(base)
    mapping = map_of_tokenizer(tiny / "tokenizer.json", base["text_config"]["vocab_size"])
    text["text_config"]["engram_compressed_vocab_size"] = 1 + max(mapping)
    _write(tiny / "config.json", text)

    wide = copy.deepcopy(base)
    wide["text_config"] |= PRODUCTION_WIDTHS
    _write(folder / "production-shape" / "config.json", wide)


def _write(path: Path, raw: dict[str, object]) -> None:
    config_from_json(raw)  # only valid configurations are written
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(raw, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
