"""The limits that choose between ways, with values so small that the other way is gone."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

OPTIONS: dict[str, Sequence[Any]] = {
    "page_size": (4096, 4096, 16384),
    "segment_bytes": (2 << 20, 3 << 20),
    "data_files": (1, 2, 5),
    "inline_limit_bytes": (1, 300, 600, 1500, 3000, 20_000),
    "large_limit_bytes": (1, 2000, 30_000, 200_000),
    "large_limit_messages": (1, 3, 30),
    "large_flush_bytes": (1, 2000, 50_000),
    "write_buffer": ("shared", "per-queue"),
    "write_buffer_bytes": (1, 3000, 40_000, 400_000),
    "write_buffer_messages": (1, 4, 40, 400),
    "write_buffer_seconds": (0.000_001, 1.0),
    "when_full": ("spill", "large"),
    "checkpoint_bytes": (10_000, 100_000),
    "grow_bytes": (4096, 1 << 16),
    "ltds_compression": (None, "zstd", "lz4"),
    "strategy": ("reserve-mode", "lock-all", "reserve-at-open", "reserve-mode-counted"),
}
"""Of a store, each with values that are small, and choose the other way."""

LIMITS: dict[str, Sequence[int]] = {
    "COPY_TWICE_BYTES": (0, 64, 1000),
    "ARROW_CACHED_ROWS": (1, 4),
    "ARROW_WHOLE_ROWS": (1, 3),
    "ARROW_WHOLE_BYTES": (1, 2000),
    "ARROW_SLICE_ROWS": (1, 3),
    "ARROW_SLICE_BYTES": (1, 2000),
    "MAX_LTDS_BLOCK_BYTES": (64, 5000),
    "LTDS_WRITE_BYTES": (4096, 8192),
    "CHUNK_BYTES": (512, 4096),
    "LTDS_SYNC_BYTES": (64, 5000),
    "REMOVAL_SLICE_BYTES": (4096,),
    "ROWS_BLOCK_BYTES": (64, 5000),
    "HEADED_BYTES": (64, 2000),
    "HEAD_READ_BYTES": (64, 512),
    "STATISTICS_ROWS": (1, 3),
    "STATISTICS_COLUMNS": (1,),
    "STATISTICS_TEXT": (2,),
    "COLUMN_SUMS_BYTES": (1, 500),
    "COLUMN_SUMS_SHARE": (1, 4),
    "JOINED_RECORD_BYTES": (0, 100, 2000),
    "BUFFER_STEP_BYTES": (1, 200),
    "BUFFER_STEP_MESSAGES": (1, 3),
    "MAX_DATA_BLOCK_BYTES": (64, 3000),
    "SCATTERED_BLOCK_BYTES": (64, 3000),
    "GROUP_BYTES": (1, 5000),
    "GATHERED_CHANGES": (1, 2),
    "LOGGED_ROLLBACKS": (1, 3),
    "UNSYNCED_BYTES": (1, 9000),
    "LET_GO_AT_ONCE": (1, 5),
    "LET_GO_PART": (1,),
    "DEAD_LETTERS_AT_ONCE": (1, 2),
    "STUCK_AT_ONCE": (1,),
    "EXPIRED_AT_ONCE": (1, 3),
    "PURGED_AT_ONCE": (1, 3),
    "PURGED_RUNS": (1, 3),
    "ROWS_LOOKED_UP": (2, 5),
    "BYTES_LOOKED_UP": (0, 100),
    "RUNS_JOINED": (1, 3),
    "FIRST_BUFFER_BYTES": (4096,),
    "KEPT_BUFFER_BYTES": (4096, 8192),
    "FIRST_SEGMENT_BYTES": (1 << 15,),
    "MAX_SPARES": (0, 1),
    "COMPACT_ROUNDS": (1, 2),
    "READ_HANDLES": (1, 2),
    "SCAN_WINDOW_BYTES": (1 << 16,),
    "SEARCH_CHUNK_BYTES": (1 << 16,),
    "IDLE_JOURNAL_BYTES": (0,),
    "SPARE_STEP_BYTES": (1, 1000),
    "SPARE_STEP_BYTES_PER_QUEUE": (1, 100),
    "COUNTED_MESSAGES": (1, 10),
    "COUNTED_TIMES": (1,),
    "SPARE_MOST_TIMES": (1,),
    "FIRST_GROW_BYTES": (4096, 1 << 16),
    "FILE_SLACK_BYTES": (1, 1 << 16),
    "MAX_WRITE_BYTES": (1 << 16, 1 << 17),
    "MAX_LENT_BUFFERS": (1,),
    "MAX_IDLE_BUFFERS": (0, 1),
    "FREE_SPACE_CANDIDATES": (2,),
    "ZERO_CHUNK_BYTES": (4096,),
    "MOVED_WRITE_BYTES": (1, 5000),
    "PACE_STEPS": (1,),
    "PACKED_BLOCK_BYTES": (64, 3000),
    "PACKED_BLOCK_MESSAGES": (1, 3),
    "REORGANISE_BYTES": (1, 5000),
    "REORGANISE_BLOCKS": (1, 3),
    "REORGANISE_RECORD_PAGES": (1, 3),
    "RECORD_CACHE_BYTES": (1, 9000),
    "SCAN_AHEAD": (1, 2),
    "RECORDS_AT_ONCE": (1, 3),
    "INTERVALS_CHUNK": (1, 2, 3, 6),
    "INDEXED_AT_ONCE": (1, 3),
    "GROUPED_AT_ONCE": (1, 3),
    "ORDERED_AT_ONCE": (1, 3),
    "HEAPIFIED": (1, 3),
    "LANE_SLACK": (0, 2),
    "LINE_RUN": (1, 3),
    "GROUPS_PAGE": (1, 3),
    "POSITION_STATES_PAGE": (1, 2, 5),
    "VOLATILE_RECORDS": (1, 3),
    "VOLATILE_BLOCK_BYTES": (1, 2000),
    "POINTERS_AT_ONCE": (1, 3),
    "INLINE_CACHE_BYTES": (1, 9000),
    "BLOCK_CACHE_BYTES": (1, 9000),
    "LTDS_READERS": (1, 2),
    "LTDS_WRITERS": (0, 1, 2),
    "BATCH_ROWS": (1, 3),
    "BATCH_BYTES": (1, 2000),
    "WHOLE_BATCH_ROWS": (1, 3),
}
"""Those of `quire.limits` that choose a way."""

NO_WAY = frozenset({
    # Of finding and hearing, which these scripts do not do; their own tests draw some of them.
    "CHOSEN_WAIT_SECONDS", "CHECKED_ONE_BY_ONE", "RECENT_REMOVALS_BYTES", "RECENT_REMOVALS_KEPT",
    "HASHED_ONE_BY_ONE", "LISTENER_POLL_SECONDS", "NOTICE_ATTEMPTS", "NOTICE_IDS", "NOTICE_LOOKS",
    "NOTICE_RETRY_SECONDS", "IMAGES_BYTES", "INDEXED_POSITIONS", "LATE_INDEXED", "RETURNS_KEPT",
    "LISTENED_SECONDS", "MAX_INDEXED", "MAX_INDEXED_NAME", "MAX_NUMBER_CHARACTERS",
    "MAX_SUBSCRIPTION_ENTRY_BYTES", "PASSED_POSITIONS", "PLAIN_NUMBER_DIGITS",
    "VIEWED_BLOCKS", "VIEWED_BYTES", "VIEWED_PAGES", "WAITED_FIRST",
    "KEYS_IN_VAIN", "PATTERNS_KEPT", "EXPLAINED_MESSAGES", "EXPLAINED_PAGES",
    "EXPLAINED_SLACK_US", "FREE_MARGIN_PART",
    "TIME_COUNTS", "TIMED_ONE_IN", "SIZE_COUNTS",
    "AIO_PUTS", "AIO_THREADS", "ANSWER_SECONDS", "APART_BITS", "CALL_LEVELS",
    "CANCEL_SECONDS", "CANDIDATE_PAUSE_SECONDS", "DEFAULT_CALL_TIMEOUT", "MAX_TRIED_BYTES",
    "REDRIVEN_AT_ONCE", "EARLIEST_INT_US",
    "CHECKPOINT_ATTEMPTS_BYTES", "CHECKPOINT_DIRECTORY_BYTES", "CHECKPOINT_ENTRY_BYTES",
    "CHECKPOINT_FIXED_BYTES", "CHECKPOINT_INTERVAL_BYTES", "CHECKPOINT_QUEUE_BYTES",
    "CHECKPOINT_REQUEST_BYTES", "CHECKPOINT_STATE_BYTES", "CHECKPOINT_SUBSCRIPTION_BYTES",
    "GROWTH_TIMES", "RUNS_BITS_BYTES", "RUNS_BOUNDS", "RUNS_WORD_BITS", "SPARE_MARGIN_BYTES",
    "CHECKPOINT_TRIES", "CLAIM_SECONDS", "COMMAND_BATCH_MESSAGES",
    "COMMAND_VARIABLE_BYTES", "COMMIT_BYTES", "CONTROL_BYTES",
    "DEFAULT_CAPACITY_BYTES", "DEFAULT_CHECKPOINT_BYTES", "DEFAULT_COMMIT_TIMEOUT",
    "DEFAULT_GROW_BYTES", "DEFAULT_INLINE_LIMIT_BYTES", "DEFAULT_LARGE_LIMIT_BYTES",
    "DEFAULT_LARGE_LIMIT_MESSAGES", "DEFAULT_LEASE_SECONDS", "DEFAULT_PAGE_SIZE",
    "DEFAULT_SEGMENT_BYTES", "DEFAULT_SEQUENCE_HELD", "DEFAULT_SEQUENCE_SECONDS",
    "DEFAULT_TRANSACTION_TIMEOUT", "DEFAULT_WRITE_BUFFER_BYTES", "DEFAULT_WRITE_BUFFER_MESSAGES",
    "FILES_NOTED", "FOREVER_SECONDS", "HUGE_PAGE_BYTES", "MAPPED_READ_BYTES", "PLACES_TOGETHER",
    "DRAWN_ACROSS", "DRAWN_DOWN", "DRAWN_HEIGHT", "DRAWN_MARGIN", "DRAWN_NAME_SIZE",
    "DRAWN_PADDING", "DRAWN_SMALLEST", "DRAWN_WIDTH", "DRAWN_WORDS_SIZE", "DUES", "DUE_BITS",
    "DUMP_TRIES", "FIELD_START_CHARACTERS", "FIRST_PAUSE_SECONDS", "FIRST_REPEAT_SECONDS",
    "MAX_REPEAT_SECONDS",
    "FIRST_SEGMENT_PAGES", "FIRST_WINDOW_US", "FRAGMENT_AGE_SECONDS", "GRAPH_LINE_SECONDS",
    "GROUPS_PAGE_BYTES", "GROUP_NUMBERS", "GROUP_NUMBER_BYTES", "RUN_BYTES",
    "HANDOUT_RUNS", "HAND_OVER_SECONDS", "INTERVAL_SECONDS",
    "JOIN_POLL_SECONDS", "JOIN_SECONDS", "KEPT_BACK_SEGMENTS", "LANE_BYTES", "LARGE_FLUSH_BYTES",
    "LAST_RANK", "LATE_SECONDS", "LAYOUT_PASSES", "LIGHT_BLOCK_BYTES", "LONGEST_CODE",
    "LONGEST_PAUSE_SECONDS",
    "MAX_ALIASES", "MAX_ATTRIBUTES", "MAX_ATTRIBUTES_BYTES", "MAX_BLOCK_BYTES",
    "MAX_CAPACITY_BYTES", "MAX_CATALOG_ENTRY_BYTES", "MAX_COLUMNS", "MAX_CONCURRENCY",
    "MAX_CRON_CHARACTERS", "MAX_DATA_FILES", "MAX_DATA_FILE_BYTES", "MAX_DELAY_SECONDS",
    "MAX_DELIVERIES", "MAX_DOUBLINGS", "MAX_FILTER_BYTES", "MAX_FILTER_DEPTH", "MAX_GROUP",
    "MAX_KEPT", "MAX_LEASES", "MAX_LEDGER_KEY_BYTES", "MAX_MESSAGE_ID", "MAX_MISSED",
    "MAX_PAGE_SIZE_BYTES", "MAX_PAYLOAD_BYTES", "MAX_PRIORITY", "MAX_PROPERTIES", "MAX_QUEUES",
    "MAX_QUEUE_ENTRY_BYTES", "MAX_REASON_BYTES", "MAX_REQUESTS", "MAX_REQUESTS_BYTES",
    "MAX_REQUEST_ID_BYTES", "MAX_SCHEDULES", "MAX_SCHEDULE_ENTRY_BYTES", "MAX_SCHEMA_BYTES",
    "MAX_SCHEMA_DEPTH", "MAX_SEQUENCE_HELD", "MAX_SEQUENCE_NUMBER", "MAX_STATE_BYTES",
    "MAX_STATE_CHANGE_BYTES", "MAX_STATE_KEYS", "MAX_STATE_KEY_BYTES", "MAX_STATE_NAME_BYTES",
    "MAX_STATE_VALUE_BYTES", "MAX_STREAM_BYTES", "MAX_STRING_BYTES", "MAX_SUBSCRIPTIONS",
    "MAX_TEXT_BYTES", "MAX_TIME_US", "MAX_TTL_SECONDS", "MAX_XID_BYTES", "MEMORY_PAGE_BYTES",
    "MESSAGE_OVERHEAD_BYTES", "MIDDLE", "MIN_BUFFER_BYTES", "MIN_CAPACITY_BYTES",
    "MIN_PAGE_SIZE_BYTES", "DUMPED_RECORDS", "NEVER_US", "OPEN_BYTES", "ORDERED_TEXT_BYTES",
    "PACE_REST_SECONDS", "PACE_WORK_SECONDS", "PAYLOAD_START_BYTES", "POSITIONS", "POSITION_BITS",
    "PLACES_BYTES",
    "LARGE_BLOCK_BYTES",
    "PUT_AT_ONCE", "PUT_LEVELS", "REASONS_KEPT", "REMOVAL_PAUSE_SECONDS", "REORGANISE_SECONDS",
    "OWNERS_LOST", "RETURNED_BYTES", "ROOM_TRIES",
    "ROWS_COLUMN_BYTES", "ROWS_HEAD_BYTES", "ROWS_OBJECT_BYTES", "SENDER_BITS", "SEQUENCE_RANKS",
    "SEQUENCE_RANK_BITS", "SEQUENCE_SENDERS", "SEQUENCE_STEP_BITS", "SIGN", "START_SECONDS",
    "STATE_DROP_BYTES", "STATE_ENTRY_BYTES", "STOP_POLL_SECONDS", "TAKEN_BYTES", "TEMPORARY_IDS",
    "TIMED_BYTES", "TRIM_SECONDS", "UNSYNCED_SECONDS", "VOLATILE_BITS", "VOLATILE_IDS",
    "POSITION_STATES_PAGE_BYTES", "WIDER_WINDOW", "WORKERS_GRACE_SECONDS",
    "NEAR_CHARACTERS", "NEAR_NAMES", "WORKERS_LONGEST_RETRY_SECONDS", "WORKERS_RETRY_SECONDS",
    "DEFAULT_ARCHIVE_LIMIT_BYTES", "MIN_ARCHIVE_LIMIT_BYTES", "UNSHIPPED_ENDS",
    "UNSHIPPED_STEP_BYTES", "MAX_ARCHIVE_URL_BYTES", "APPENDED_BYTES", "CHECKPOINT_ARCHIVE_BYTES",
})  # fmt: skip
"""The rest: they refuse what passes them, give less at once, are times, sums or parts of a format,
or are no matter of a store's transactions."""


_OF_LIGHT = (
    "write_buffer", "write_buffer_bytes", "write_buffer_messages", "large_limit_bytes",
    "large_limit_messages",
)  # fmt: skip


def drawn_options(rng: Random) -> dict[str, Any]:
    """Options, some of them small."""
    share = rng.choice((0.15, 0.4, 0.8))
    found = {name: rng.choice(few) for name, few in OPTIONS.items() if rng.random() < share}
    for name in ("inline_limit_bytes", "data_files"):  # where blocks go
        if rng.random() < 0.6:
            found[name] = rng.choice(OPTIONS[name])
    if rng.random() < 0.4:  # small transactions may be light
        found = {name: value for name, value in found.items() if name not in _OF_LIGHT}
    return found


def drawn_limits(rng: Random) -> dict[str, int]:
    """Limits, likewise."""
    share = rng.choice((0.0, 0.15, 0.4, 0.8))
    return {name: rng.choice(few) for name, few in LIMITS.items() if rng.random() < share}
