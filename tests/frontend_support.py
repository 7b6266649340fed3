"""What the frontend's tests share: the example configurations as JSON, and the one error that a bad one must give."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dinfc.diagnostics import DinfcError
from dinfc.frontend.config import ModelConfig, config_from_json, load_config

REPOSITORY = Path(__file__).parent.parent
EXAMPLES = REPOSITORY / "examples"
TARGETS = ("ascend950", "cpu", "sm100", "sm90")


def example_json(name: str = "tiny-test") -> dict[str, Any]:
    """A fresh copy of examples/NAME/config.json."""
    raw: dict[str, Any] = json.loads((EXAMPLES / name / "config.json").read_text(encoding="utf-8"))
    return raw


def example_config(name: str = "tiny-test") -> ModelConfig:
    return load_config(EXAMPLES / name / "config.json")


def changed(**text_config: object) -> ModelConfig:
    """The configuration of §12.2 with other values in text_config."""
    raw = copy.deepcopy(example_json())
    raw["text_config"] |= text_config
    return config_from_json(raw)


def error_of(action: Callable[[], object]) -> DinfcError:
    """The one catalogued error of the user's kind that `action` raises."""
    with pytest.raises(DinfcError) as caught:
        action()
    assert caught.value.exit_code == 1
    assert caught.value.mend
    return caught.value
