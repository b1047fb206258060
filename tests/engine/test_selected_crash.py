"""Subscriptions with a selector over power failures: what they pass by, and what they get."""

from __future__ import annotations

import pytest

from quire.testing import SimEnv, enumerate_crashes
from tests.engine.workload import new_machine, open_store

RED = "colour = 'red'"


@pytest.mark.crash
@pytest.mark.promise(1, 2)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_promise_1_2_power_failure_at_every_call(seed: int, spread: int) -> None:
    """What was acknowledged and is asked for comes once, in order; what is not, never."""
    base = new_machine(seed)
    with open_store(base) as store:
        store.create_queue("t", kind="topic")

    def run(env: SimEnv, done: list[tuple[str, int]]) -> None:
        store = open_store(env)
        store.subscribe("t", "red", where=RED)
        store.subscribe("t", "all")
        done.append(("made", 0))
        for n in range(6):
            store.put("t", b"%d" % n, attributes={"colour": "red" if n % 3 else "blue"})
            done.append(("put", n))
            store._maintenance.step()
        got = store.get("t/red")
        assert got is not None
        assert got.payload == b"1"
        done.append(("got", 1))
        store.admin.checkpoint()
        store._maintenance.step()
        store.close()

    def check(env: SimEnv, done: list[tuple[str, int]]) -> None:
        put = [n for what, n in done if what == "put"]
        with open_store(env) as store:
            names = {each.name: each.where for each in store.subscriptions("t")}
            assert names in ({"red": RED, "all": None}, {"red": RED}, {})
            if ("made", 0) in done:
                assert len(names) == 2
            if len(names) < 2:
                return
            found = [int(each) for each in store.get_many("t/red").payloads()]
            everything = [int(each) for each in store.get_many("t/all").payloads()]
            assert everything in (put, [*put, len(put)])
            asked = [n for n in everything if n % 3]
            assert found in ([asked[1:]] if ("got", 1) in done else [asked, asked[1:]])
            store._maintenance.step()
            assert store.queue("t").messages == 0
            assert store.admin.verify().ok

    assert enumerate_crashes(
        run, check, list, seed=seed, rounds=1, every=(spread + 1) // 2,
        new_env=lambda _: base.kill(),
    ) > 20  # fmt: skip
