"""All engines by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thinker.runs.engines.engine import EngineSpec
from thinker.runs.engines.local import LocalSpec
from thinker.runs.engines.ray.spec import RaySpec

ENGINES: dict[str, type] = {"local": LocalSpec, "ray": RaySpec}


def engine_from_dict(values: Mapping[str, Any]) -> EngineSpec:
    """The inverse of `EngineSpec.describe`."""
    options = dict(values)
    spec: EngineSpec = ENGINES[options.pop("name")](**options)
    return spec
