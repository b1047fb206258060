"""Programs of child processes: one that owns a store, one that has joined it."""

from __future__ import annotations

OWNER = """
import sys
from quire.opening import open
store = open(sys.argv[1], segment_bytes=4 << 20)
assert store.role == "owner"
store.share(store._env).wait_started()
print("ready", flush=True)
sys.stdin.readline()
store.close()
print("closed", flush=True)
"""

CLIENT = """
import sys
from quire.opening import open
store = open(sys.argv[1])
assert store.role == "joined"
txn = store.transaction()
print(*[message.payload.decode() for message in txn.get_many("work")], flush=True)
print(store.transaction().get("work", timeout=float(sys.argv[2])), flush=True)
sys.stdin.readline()
"""
