"""What every commit looks at keeps its attributes where CPython finds them fast."""

from __future__ import annotations

from quire.engine import EmbeddedStore as Store

MOST = 29  # of an object whose attributes CPython 3.11 keeps in place; with more it makes a dict


def test_no_object_of_a_commit_has_too_many_attributes(store: Store, work: str) -> None:
    """From 30 on each look-up of any of them takes about twice as long (give it `__slots__`)."""
    store.put(work, b"x")
    context = store._context
    objects = [
        store,
        context.committer,
        context.sequencer,
        context.state,
        context.reader,
        context.journal,
        context.places,
        context.state.queue(work),
    ]
    counts = {type(one).__name__: len(vars(one)) for one in objects if hasattr(one, "__dict__")}
    assert counts
    assert {name: count for name, count in counts.items() if count > MOST} == {}
