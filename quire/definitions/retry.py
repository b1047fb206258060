"""Retry policies: how long a message stays hidden after a delivery that failed.

What `Workers` wait where neither queue nor worker says it is `quire.workers.RETRY`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, Literal, TypedDict, cast

from quire.errors import InvalidArgument
from quire.limits import MAX_DELAY_SECONDS, MAX_DOUBLINGS
from quire.moments import Duration, seconds_of

Growth = Literal["constant", "linear", "exponential"]


class Retry(TypedDict, total=False):
    """A retry policy, for a queue's option `retry` and for `reject(delay=)`."""

    delay: Duration
    """Seconds after the first failed delivery: above 0, up to 366 days. It must be given."""
    growth: Growth
    """After the n-th delivery: "constant": `delay`; "linear": n times `delay`; "exponential", the
    default: `delay` doubled n - 1 times."""
    cap: Duration
    """Seconds, the most; 366 days by default."""
    jitter: float
    """The share of the seconds that is left out by chance, at most: 0 (the default) to 1. So
    messages that failed together do not come again together."""


_GROWTHS: Final = ("constant", "linear", "exponential")


def check_retry(name: str, value: object) -> dict[str, Any] | None:
    """A policy with all of its fields; None: none. Raises InvalidArgument."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or not set(value) <= set(Retry.__annotations__):
        raise InvalidArgument(
            f"{name} {value!r:.100}: give {', '.join(Retry.__annotations__)} by name, or None"
        )
    policy = {"growth": "exponential", "cap": MAX_DELAY_SECONDS, "jitter": 0.0, **value}
    if policy["growth"] not in _GROWTHS:
        raise InvalidArgument(f"{name}: growth {policy['growth']!r:.100}: give one of {_GROWTHS}")
    for field, limit in (("delay", MAX_DELAY_SECONDS), ("cap", MAX_DELAY_SECONDS), ("jitter", 1.0)):
        number = seconds_of(policy.get(field))
        is_number = isinstance(number, (int, float)) and not isinstance(number, bool)
        least = 0 if field == "jitter" else math.ulp(0.0)
        if not is_number or not least <= cast(float, number) <= limit:
            above = "from" if field == "jitter" else "above"
            raise InvalidArgument(f"{name}: {field} {number!r:.100}: give {above} 0, up to {limit}")
        policy[field] = float(cast(float, number))
    return policy


def retry_seconds(policy: Mapping[str, Any], deliveries: int, chance: float) -> float:
    """Return the seconds to wait after so many deliveries. `chance`: from 0 to 1."""
    delay: float = policy["delay"]
    if policy["growth"] == "linear":
        delay *= deliveries
    elif policy["growth"] == "exponential":
        delay = math.ldexp(delay, min(deliveries - 1, MAX_DOUBLINGS))
    return float(min(delay, policy["cap"]) * (1.0 - policy["jitter"] * chance))
