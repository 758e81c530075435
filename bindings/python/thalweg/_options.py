"""Options of ports, as text: the words that the command and profiles have for them (docs/qos.md)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from ._thalweg import UsageError

Policy: TypeAlias = "str | int | float | bool | Iterable[str] | tuple[int, int] | None"

_DURATIONS = {"deadline", "latency_budget", "lifespan", "separation", "lease", "pull_age"}
_SIZES = {"max_message", "bytes", "pull_bytes"}
_PRIORITY = {"sched", "affinity", "dscp", "tos", "pace", "police", "socket_priority"}


def port_options(
    name: str | None,
    session: str | None,
    carriers: Iterable[str] | None,
    policies: dict[str, Policy],
) -> dict[str, Any]:
    """Options of a publisher or subscriber, as the native module takes them."""
    stated = {key: value for key, value in policies.items() if value is not None}
    depth = stated.pop("depth", None)
    if depth is not None:
        if "queue" in stated:
            raise UsageError("depth and queue state the same: depth=16 is queue=\"keep-last 16\"")
        stated["queue"] = f"keep-last {depth}"
    return {
        "name": name,
        "session": session,
        "carriers": None if carriers is None else [carriers] if isinstance(carriers, str) else list(carriers),
        "policies": [(_word(key), _text(key, value)) for key, value in stated.items() if key not in _PRIORITY],
        "priority": words({key: value for key, value in stated.items() if key in _PRIORITY}),
    }


def words(settings: dict[str, Policy]) -> list[str]:
    """Settings of a priority, such as `class=high`."""
    renamed = {"socket_priority": "priority"}
    return [f"{renamed.get(key, _word(key))}={_text(key, value)}" for key, value in settings.items() if value is not None]


def _word(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _text(key: str, value: Policy) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)) and key in _DURATIONS:
        return f"{round(value * 1e9)}ns"
    if isinstance(value, int) and key in _SIZES:
        return f"{value}B"
    if isinstance(value, (str, int, float)) or value is None:
        return str(value)
    return ("x" if key == "picture" else ",").join(str(part) for part in value)
