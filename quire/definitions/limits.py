"""Bounds of what queues may be made with, of which each has its reason."""

from quire.limits import GROUP_NUMBERS

MAX_IN_FLIGHT_LIMIT = 1_000_000  # messages at a time: more than any pool of workers has
MAX_RATE = 1_000_000  # messages a second: more than are handed out where each has its rules
SLOWEST_RATE = 1 / 86_400  # one a day: what is rarer is a schedule's
RATE_SLICES = 128  # of the second in which starts are counted: under 1% of the rate is lost by them
TURN_BITS = 60  # of a group's turn, as it stands in an order: more than are ever taken
GROUPS_REMEMBERED = 1024  # of which nothing waits, before those go whose time is over
STARTS_BYTES, TURN_BYTES = 250, 100  # of a group: a window with few starts, a turn; measured
ALONE = 1 << 60  # the number of the group of what has no key, above those of keys

assert ALONE > GROUP_NUMBERS
