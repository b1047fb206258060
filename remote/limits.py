"""All limits of sharing a store between processes, each with its reason, and their relations."""

from __future__ import annotations

# --- frames ---

MAX_HEADER_BYTES = 64 << 20  # a lease of a long range lists its pieces here
MAX_FRAME_BYTES = (1 << 31) - (1 << 20)  # what one call of the system sends and receives
MAX_HELLO_BYTES = 64 << 10  # who has not said hello may not have the other side keep more
ANSWER_BYTES = 32 << 20  # an answer is cut into frames of about this size
SEND_AHEAD_BYTES = 8 << 20  # what a client buffers for one transaction before it sends it
HELD_BYTES = 2 * SEND_AHEAD_BYTES  # of puts that wait for room, with what is told meanwhile
# Of blocks that are put together: each has a part in a frame, and a frame for each of a thousand
# queues costs its client and the owner a call of the system and a thread's turn; the owner begins
# with the first ones while the next are made.
TELL_BYTES = 256 << 10
RECEIVE_BYTES = 64 << 10  # at once; a frame that is longer is received in place
FIRST_RECEIVE_BYTES = 4 << 10  # of a connection that has a buffer for that to itself
# Of the buffer for a long frame, to begin with; it doubles as the frame comes. What the other side
# only claims to send takes no more than this.
FIRST_BUFFER_BYTES = 1 << 20
JOIN_BYTES = (
    16 << 10
)  # parts of a frame up to this are copied into one: cheaper than a list of them
LOOK_CHARACTERS = 200  # of an argument that cannot be sent: enough for the error that names it
SPAN_LEVELS = 3  # of lists and maps in which a span of time may be: queues, one, its `retry`

assert SEND_AHEAD_BYTES + MAX_HEADER_BYTES < MAX_FRAME_BYTES
assert ANSWER_BYTES + MAX_HEADER_BYTES < MAX_FRAME_BYTES
assert FIRST_RECEIVE_BYTES <= MAX_HELLO_BYTES <= RECEIVE_BYTES <= FIRST_BUFFER_BYTES

# --- connections ---

MAX_CONNECTIONS = 4096  # of one owner; its files count against the same limit of the system
KEPT_FILES = 128  # of that limit, for all else that the owner opens
MAX_IDLE_CHANNELS = 4  # that a client keeps open for its next transactions
MAX_STREAMS = 1024  # transactions that a connection has open at a time
IDLE_STREAMS = 64  # whose handlers a connection keeps for its next streams
LAST_STREAM = (1 << 32) - (1 << 20)  # a connection that has come so far is for no more requests
MAX_AWAITED = 10_000  # sources that a connection awaits
REMEMBERED_DECISIONS = 256  # of prepared transactions, the latest, for clients that ask again
BACKLOG = 512  # connections that wait to be accepted
MAX_SOCKET_PATH_BYTES = 103  # an address of macOS has 104 bytes, of Linux 108, and ends with a zero
MAX_PORT = 65535
MAX_PARTS = 512  # of one call of the system that sends, which takes 1024

EVENTS_AT_ONCE = 64  # of an entrance or a relay, before the next are looked for
# Connections of an owner on which something has come, of all that one look tells of: a user of many
# keeps no other's from being seen.
POLLED_AT_ONCE = 1024
# Of requests that the owner's own thread begins between two looks at what has come, shared among
# the users that have some; each begins one at least. As many fit into two groups of commits.
REQUESTS_AT_ONCE = 64
HEAVY_BYTES = (
    64 << 10
)  # a request, or a transaction's puts, from which on it has a thread of its own
# Of a connection: requests that are read and not answered, beside those that are put aside; each
# counts `REQUEST_BYTES` more, what is kept of its stream. With more of them, or with more answers
# that are not sent, nothing is read from it, and with the latter nothing is begun.
PENDING_BYTES = SEND_AHEAD_BYTES
REQUEST_BYTES = 2 << 10
UNSENT_BYTES = 1 << 20
UNSENT_FRAME_BYTES = 256

# --- connections to other machines ---

MAX_RECONNECT_SECONDS = 2.0  # between two rounds over the addresses of a store whose owner is gone

# Without an answer of the other machine's system, or a sign of its process, until it is gone.
HEARTBEAT_SECONDS = 30.0
HEARTBEATS_IN_TIME = 3  # that a client sends: one that is late ends nothing
# That count as silence between two looks: more have gone by where this process was stopped itself.
MAX_SILENCE_SECONDS = 2.0
# Of a connection: after so many idle seconds its system is asked, so often, every so many seconds.
KEEP_ALIVE = {
    "TCP_KEEPIDLE": 10,
    "TCP_KEEPALIVE": 10,  # the same, as macOS has it
    "TCP_KEEPINTVL": 5,
    "TCP_KEEPCNT": 4,
    "TCP_USER_TIMEOUT": 1000 * int(HEARTBEAT_SECONDS),  # for what is sent and not acknowledged
}

TLS_BYTES_AT_ONCE = 64 << 10  # that are encrypted, or received: four records
TLS_UNSENT_BYTES = 64 << 10  # of answers to what the protocol of TLS demands; a client has none
MAX_HANDSHAKES = 256  # that are under way; the oldest gives way to the next one: some 15 MB
HANDSHAKE_SECONDS = 10.0  # that one may take, and then the greeting and the hello as long

# --- the owner's threads ---

MAX_WORKERS = 256  # a request that waits (for room, a chosen message, the disk) has one of them
MAX_WAITING = 192  # of those, requests that wait for other clients
# Of those, requests of one connection that do not wait for other clients: a few long ones delay no
# short one, and each may make an answer of `ANSWER_BYTES`.
MAX_WORKERS_OF_CONNECTION = 4
MAX_WAITING_GETS = 100_000  # put aside, in all: some 100 MB; their connections are fewer as it is
# Of gets that are tried, or whose time is over, between two looks at what has come: some 2 ms.
WAKES_AT_ONCE = 64
STALE_TIMES = 1024  # of gets that are over, beside twice as many as wait, until they are dropped
IDLE_WORKERS = 4  # that are kept for the next requests

assert UNSENT_BYTES < PENDING_BYTES
assert IDLE_WORKERS < MAX_WORKERS - MAX_WAITING  # a long request finds a thread all the same

# --- time ---

MAX_WAIT_SECONDS = 1e6  # of a socket; more is for ever
LOOK_SECONDS = 1.0  # between two looks of an owner process at its store
LONG_JOINED_SECONDS = 1.0  # a command has ended by then; who has not may be the next owner
MAX_PREPARATION_SECONDS = 30.0  # by then who has joined can own the store without further imports
HELLO_SECONDS = 5.0  # that a client waits for an owner's first answer
ROLLBACK_SECONDS = 0.1  # beside the margin that every request has
BACKLOG_PAUSE_SECONDS = 0.02  # until the next try, where as many wait as may
DRAIN_LOOK_SECONDS = 0.02  # whether the transactions have ended that are waited for at the end
FINISH_SECONDS = 5.0  # for requests under way when the server closes
SEND_SECONDS = 10.0  # that an answer waits for a client that does not read
SEND_BYTES_PER_SECOND = 1 << 20  # a long answer may take as much longer
ACCEPT_PAUSE_SECONDS = 0.1  # when the system has no file for a connection any more

# --- the owner process ---

LOG_TAIL_BYTES = 4096  # where its last words are looked for

# --- the shipper of an owner's archive ---

RESTART_SECONDS = 1.0  # after the end of one, twice as long after each that has done nothing
MAX_RESTART_SECONDS = 60.0
SILENT_SECONDS = 300.0  # that one may not call: longer than all tries of a request, twice
LAST_SHIPPING_SECONDS = 5.0  # that the close of a store waits for what is not shipped yet

# --- users of a served store ---

MAX_USERS_FILE_BYTES = 16 << 20  # 20,000 users with some rights each
MAX_TOKENS_OF_USER = 2  # the one in use, and the one that is to follow it
MAX_GRANT_NAME = 250  # characters; names have at most 200
MAX_KEPT_ANSWERS = 10_000  # whether a user has a right; then they are found anew
USERS_CHANGE_SECONDS = 10.0  # that a command waits for another one that changes the file
USERS_POLL_SECONDS = 0.05
USERS_READS = 3  # of a file that is replaced while it is read
MAX_NOTED_NEEDS = 100_000  # of one transaction, which are looked at again at its commit: some 30 MB
USERS_LOOK_SECONDS = 0.4  # between two looks of a server at the file: a change holds in a second
MAX_TOKENS_FILE_BYTES = 1 << 20
FREE_REFUSALS = 10  # of one address in a minute: more than a person makes by mistake
REFUSALS_SECONDS = 60.0
# Between two tries of a client whose user is locked, or has no valid token, and who was let in
# before: some ten in a minute.
REFUSED_RECONNECT_SECONDS = 5.0
REFUSED_PAUSE_SECONDS = 1.0  # for each further client of that address
MAX_REFUSED_ADDRESSES = 10_000  # some 2 MB
AUDIT_FILE_BYTES = 10 << 20  # some 50,000 lines
AUDIT_FILES = 5  # the one that is written, and those before it
AUDITED_REFUSALS = 100  # of a user in a minute: the others are counted

# --- what clients of a served store have in use, see `access.use_limits` ---

# A small server: a user at each of these leaves room for ten others.
USER_CONNECTIONS = 256  # a store object has two, and one more for what it awaits
MAX_OPEN_TRANSACTIONS = (
    100_000  # of all clients; one takes some KB, and each user has `MAX_STREAMS`
)
USER_REQUEST_BYTES = 64 << 20  # a client sends `SEND_AHEAD_BYTES` at a time, beside long payloads
USER_BYTES = 256 << 20  # of requests that came, and answers that wait for their reader
USER_WAITING_GETS = 10_000
USER_WAITING = MAX_WAITING // 4
USER_PUTS_PER_SECOND = 100_000  # of messages: more than one connection puts by itself
USER_IDLE_SECONDS = 3600.0  # as long as a transaction may stay open
MIN_REQUEST_BYTES = 2 * SEND_AHEAD_BYTES  # less would keep a client from sending what it buffers
BYTES_RETRY_SECONDS = 0.2  # likewise, where what is in use is sent and received all the time
LIMIT_RETRY_SECONDS = 1.0  # until a client at a limit tries again, where nobody knows
PUTS_AHEAD_SECONDS = 1.0  # as many puts as the rate gives in that time may come at once
MAX_LIMIT = 1e15  # a number that is no mistake
MIN_LIMIT = 1e-3  # likewise
WORKERS_OF_USER = 16  # threads for the long requests of one user; those that wait are beside them

assert MIN_REQUEST_BYTES <= USER_REQUEST_BYTES <= USER_BYTES
assert WORKERS_OF_USER < MAX_WORKERS - MAX_WAITING
