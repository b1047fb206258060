"""Files of large transactions that no commit points to."""

from __future__ import annotations

from quire.engine.transactions.context import Context
from quire.errors import PositionLost
from quire.ltds import is_foreign, list_ids, modified_us, remove


def sweep_fragments(context: Context) -> int:
    """Remove files of other processes that no commit adopted within `fragment_age`; how many.

    A writer that is that late gets an error when it commits: its file is gone, nothing is half
    there. If a power failure brings the file back, it is as if it had not been removed yet.
    """
    env = context.env
    limit_us = env.now_us() - int(context.options.fragment_age * 1_000_000)
    removed = 0
    for ltds_id in list_ids(env, context.ltds_directory):
        if not is_foreign(ltds_id):
            continue
        try:
            if modified_us(env, context.ltds_directory, ltds_id) >= limit_us:
                continue
            context.adoptions.hold(ltds_id)  # so that no transaction adopts it meanwhile
        except (FileNotFoundError, PositionLost):
            continue
        try:
            with context.sequencer.fail_stop("removing a file"):
                removed += remove(env, context.ltds_directory, ltds_id)
        finally:
            context.adoptions.let_go(ltds_id)
    return removed


def discard_unfinished(context: Context) -> None:
    """Discard at opening the files of transactions that did not commit."""
    places = context.places
    for ltds_id in list_ids(context.env, context.ltds_directory):
        is_kept = is_foreign(ltds_id) or places.holds(ltds_id)
        if not is_kept and not places.unshipped.has_file(ltds_id):
            places.discarded.add(ltds_id)
