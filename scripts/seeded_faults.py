"""Put faults into the engine, one at a time, and see whether the tests that shall catch them do.

Each fault is a line of the engine, the journal, the write buffer or the files of large transactions
that is wrong: a sync that is left out, a comparison that is off by one, a record that is applied
twice. It is put into a copy of the checkout, and the tests named with it are run there. First they
are run in the copy as it is, where they have to pass. A fault that no test catches is a hole:
whoever finds one adds the test.

    make faults                     # all of them; takes minutes
    make faults ARGS="--only 3,17"  # some
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from msgspec import Struct

from scripts.test_parts import IN_ALL

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 600  # a fault may let a test wait for ever: that is caught, too


class SeededFault(Struct, frozen=True):
    """A piece of a file, what stands there instead, and the tests that tell (pytest's words)."""

    about: str
    path: str
    sound: str
    faulty: str
    tests: str


FAULTS = [
    # Sessions
    SeededFault(
        "an older opening of a session goes on",
        "quire/interface/sessions/session_record.py",
        "if value is None or not Opening.of(self.name, value).is_same(self.opening):",
        "if value is None:",
        "tests/behaviour/test_sessions.py -k fences",
    ),
    SeededFault(
        "what was forgotten counts as never put",
        "quire/interface/sessions/session.py",
        "return RequestInfo(number, RequestState.FORGOTTEN if is_known else RequestState.NOT_PUT)",
        "return RequestInfo(number, RequestState.NOT_PUT)",
        "tests/behaviour/test_sessions.py -k kept",
    ),
    SeededFault(
        "nobody is told of a message that expires",
        "engine/upkeep/dead_letters.py",
        "report_all(self._context, txn, queue, runs, EXPIRED)",
        "pass",
        "tests/behaviour/test_sessions.py -k expired",
    ),
    # Keyed states
    SeededFault(
        "of one key the oldest run counts",
        "quire/keyed/run_merge.py",
        "newest_of(parts, layout.key_columns)",
        "newest_of(parts[::-1], layout.key_columns)",
        "tests/keyed/test_keyed_state.py -k model",
    ),
    SeededFault(
        "a merge of some runs forgets what is deleted",
        "quire/keyed/keyed_state.py",
        "made.add(living(rows, now_us) if is_all else rows)",
        "made.add(living(rows, now_us))",
        "tests/keyed/test_keyed_state.py -k model",
    ),
    SeededFault(
        "a change does not read the version that it follows",
        "quire/keyed/keyed_changes.py",
        "value = txn.get_value(reader.values, VERSION)",
        'value = b"%d" % reader.manifest().version',
        "tests/keyed/test_keyed_state.py -k first_of_two",
    ),
    SeededFault(
        "a piece is not verified",
        "quire/keyed/run.py",
        "if checksum(piece) != expected[number] and lengths[number]:",
        "if not lengths[number] and piece:",
        "tests/keyed/test_run.py -k damage",
    ),
    # Gets that wait at an owner
    SeededFault(
        "after a get that was answered its line is not looked at again",
        "remote/server/waiting_gets.py",
        "        self._rearm(line)\n\n    def turn(",
        "\n    def turn(",
        "tests/remote/test_waiting_gets.py -m 'not long'",
    ),
    SeededFault(
        "a wake-up is lost with the get whose turn it was",
        "remote/server/waiting_gets.py",
        "        del line.gets[get]\n",
        "        del line.gets[get]\n        self._woken.clear()\n",
        "tests/remote/test_waiting_gets.py -m 'not long'",
    ),
    SeededFault(
        "nobody is told that others ended the transaction of a get that waits",
        "engine/transactions/transaction.py",
        "            self._waits_for = EndCallback(callback)\n",
        "            pass\n",
        "tests/remote/test_waiting_served.py -k others_end",
    ),
    # The journal
    SeededFault(
        "a group is not synced before its commit returns",
        "journal/journal.py",
        "                if not self._file.direct:\n                    self._file.sync()",
        "                if not self._file.direct:\n                    pass",
        "tests/journal/test_journal.py",
    ),
    SeededFault(
        "a durable group behind one that is not synced is not synced",
        "journal/journal.py",
        "if durable or self.unsynced_bytes >= UNSYNCED_BYTES:",
        "if self.unsynced_bytes >= UNSYNCED_BYTES:",
        "tests/engine/test_unsynced_over_failures.py -k one_write_and_no_sync",
    ),
    SeededFault(
        "the checksum of a group is not looked at",
        "journal/scan.py",
        "if checksum(image[8:]) != CHECKSUM.unpack_from(image)[0]:",
        "if False:",
        "tests/journal/test_torn_or_damaged.py",
    ),
    SeededFault(
        "a group belongs to the chain whatever is before it",
        "journal/scan.py",
        "return header.previous_lsn == last.lsn and succeeds(",
        "return succeeds(",
        "tests/journal/test_recovery.py tests/journal/test_journal.py -k 'not at_every_call'",
    ),
    SeededFault(
        "recovery does not write the last group again",
        "journal/recovery.py",
        "        _settle_last_groups(directory, chain)",
        "        pass",
        "tests/engine/test_uncertain.py",
    ),
    SeededFault(
        "recovery retires later segments from the oldest on",
        "journal/recovery.py",
        "if number > current), reverse=True):",
        "if number > current)):",
        "tests/journal/test_recovery.py -k several_later_segments",
    ),
    SeededFault(
        "damage behind the journal's end is taken for a torn group",
        "journal/torn_or_damaged.py",
        "if sum(wrong) > len(wrong) // 2:",
        "if sum(wrong) >= 0:",
        "tests/journal/test_torn_or_damaged.py",
    ),
    # What waits to be shipped to an archive
    SeededFault(
        "a checkpoint does not hold what waits to be shipped",
        "engine/checkpoints/space_maps.py",
        "    if not unshipped.lets_go:\n",
        "    if False:\n",
        "tests/engine/test_unshipped.py -k over_a_crash",
    ),
    SeededFault(
        "a segment of the journal is released before it is shipped",
        "engine/checkpoints/checkpoint.py",
        "return min(snapshot.restart_lsn, snapshot.unshipped.position.lsn)",
        "return snapshot.restart_lsn",
        "tests/engine/test_unshipped.py -k segments_stay",
    ),
    SeededFault(
        "the old places of blocks that a checkpoint moves are free in it",
        "engine/checkpoints/checkpoint.py",
        "if unshipped is None or unshipped.lets_go:\n                    freed += extents",
        "if True:\n                    freed += extents",
        "tests/engine/test_unshipped.py -k old_places",
    ),
    SeededFault(
        "pages that are released are free before they are shipped",
        "engine/pages/block_places.py",
        "if unshipped is None or not unshipped.keep_pages(*extent):",
        "if True:",
        "tests/engine/test_unshipped.py -k 'stays_until or old_places'",
    ),
    SeededFault(
        "what recovery releases does not wait again",
        "engine/pages/block_places.py",
        "            self.unshipped.wait_again(again)",
        "            pass",
        "tests/engine/test_unshipped.py -k over_a_crash",
    ),
    SeededFault(
        "what was let go of is used before the gap is durable",
        "engine/checkpoints/checkpoint.py",
        "        snapshot = self._sequencer.exclusive(lambda: self._take(lets_go=lets_go))\n",
        "        snapshot = self._sequencer.exclusive(lambda: self._take(lets_go=False))\n"
        "        if lets_go:\n            self._places.let_go()\n",
        "tests/engine/test_unshipped.py -k has_a_gap",
    ),
    # The fold, recovery and checkpoints
    SeededFault(
        "records before the checkpoint are applied a second time",
        "engine/checkpoints/recovery.py",
        "if record.address < checkpoint.lsn:",
        "if record.address < 0:",
        "tests/engine/test_store.py",
    ),
    SeededFault(
        "a checkpoint is used before its name is durable",
        "engine/records/checkpoint_file.py",
        "        env.sync_directory(directory)",
        "        pass",
        "tests/engine/test_uncertain.py tests/engine/test_calls.py",
    ),
    SeededFault(
        "the checksum of a checkpoint is not looked at",
        "engine/records/checkpoint_file.py",
        "if length != len(data) or checksum(data[8:]) != digest:",
        "if length != len(data):",
        "tests/engine/test_faults.py -k flipped",
    ),
    SeededFault(
        "ids of messages do not go on behind a record of a prepared transaction",
        "engine/state/fold.py",
        "        if first_id > state.next_id:",
        "        if first_id > state.next_id and not held_by:",
        "tests/engine/test_prepared.py tests/engine/test_store.py",
    ),
    SeededFault(
        "a message of a topic is released by its first reader",
        "engine/state/durable_state.py",
        "            if not ring[0].done.contains(position):",
        "            if False:",
        "tests/engine/test_store.py tests/engine/test_durable_queue.py",
    ),
    SeededFault(
        "a new subscription begins one message too late",
        "engine/state/durable_state.py",
        "            if start > 0:\n                done.add(0, start)",
        "            if start > 0:\n                done.add(0, start + 1)",
        "tests/engine/test_queues.py -k where_a_subscription_begins",
    ),
    SeededFault(
        "the blocks of one commit get the same ids",
        "engine/state/durable_state.py",
        "                    first_id += count",
        "                    first_id += 0",
        "tests/engine/test_queues.py -k ids_go_on",
    ),
    SeededFault(
        "a queue keeps one request id less than it says",
        "engine/state/requests.py",
        "while known and (len(known) > most or",
        "while known and (len(known) >= most or",
        "tests/engine/test_requests_over_restarts.py",
    ),
    SeededFault(
        "a delivery that is taken back stays counted",
        "engine/state/attempts.py",
        "rows.append((lo, hi, max(count - 1, 0), failed, due))",
        "rows.append((lo, hi, count, failed, due))",
        "tests/engine/test_attempts.py tests/engine/test_deliveries_over_failures.py",
    ),
    # Space, pages and files
    SeededFault(
        "pages in use are handed out",
        "engine/pages/free_space.py",
        "if first + pages > self.total_pages or not self._free.covers(first, first + pages):",
        "if first + pages > self.total_pages:",
        "tests/engine/test_free_space.py",
    ),
    SeededFault(
        "pages that somebody reads are free at once",
        "engine/pages/free_space.py",
        "        if not self._pins:\n            self._put(first, end)",
        "        if True:\n            self._put(first, end)",
        "tests/engine/test_free_space.py",
    ),
    SeededFault(
        "pages that are being written are in no checkpoint's free space",
        "engine/pages/free_space.py",
        "for withheld in (self.pending, self.deferred):",
        "for withheld in (self.deferred,):",
        "tests/engine/test_free_space.py",
    ),
    SeededFault(
        "what a commit that is not durable has read is overwritten",
        "engine/pages/block_places.py",
        "if self._holding and not (refs and refs[0][8] == format.MEMORY):",
        "if False and not (refs and refs[0][8] == format.MEMORY):",
        "tests/engine/test_unsynced_over_failures.py -k pages_that_are_not_durably_free",
    ),
    SeededFault(
        "a file is removed while a lease is on it",
        "engine/pages/block_places.py",
        "going = [i for i in self._removable if i not in self._ltds_pins]",
        "going = list(self._removable)",
        "tests/engine/test_leases.py",
    ),
    SeededFault(
        "a block is free when its last message but one is read",
        "engine/queues/releases.py",
        "                if after == count:",
        "                if after >= count - 1:",
        "tests/engine/test_partly_released.py tests/engine/test_store.py",
    ),
    SeededFault(
        "an open transaction does not pay for its record",
        "engine/queues/reservation.py",
        "        self.open_transactions = opened + 1\n        self.used += size",
        "        self.open_transactions = opened + 1\n        self.used += charge",
        "tests/engine/test_rules.py tests/engine/test_rules_model.py",
    ),
    SeededFault(
        "a lease never ends",
        "engine/reading/lease.py",
        "if until <= now]",
        "if until < 0]",
        "tests/engine/test_leases.py",
    ),
    # Commits
    SeededFault(
        "a commit that found no room keeps what it has placed",
        "engine/commits/sequencer.py",
        "                if not change.relieves:\n                    change.withdraw()",
        "                if not change.relieves:\n                    pass",
        "tests/engine/test_full_disk.py -k holds_no_key",
    ),
    SeededFault(
        "the store goes on after an apply that was interrupted",
        "engine/commits/sequencer.py",
        "            if written or not isinstance(error, Exception):\n"
        "                self._failure = self._failure or repr(error)",
        "            if written or not isinstance(error, Exception):\n                pass",
        "tests/engine/test_sequencer.py tests/engine/test_interrupted_commits.py",
    ),
    # Deliveries
    SeededFault(
        "a message is delivered once more than it may be",
        "engine/queues/subscription.py",
        "return bool(self.most) and self.attempts.of(position) >= self.most",
        "return bool(self.most) and self.attempts.of(position) > self.most",
        "tests/behaviour/test_deliveries.py -k embedded",
    ),
    SeededFault(
        "what failed comes again at once",
        "engine/queues/subscription.py",
        "            if not due_us or self.is_spent(lo):",
        "            if True:",
        "tests/behaviour/test_retry.py -k embedded",
    ),
    SeededFault(
        "what was taken from an exclusive subscription is taken by another, too",
        "engine/queues/subscription.py",
        "if self.seeker is not None or (self.delivered and self.holder is not taker):",
        "if self.seeker is not None:",
        "tests/behaviour/test_topics.py -k embedded",
    ),
    SeededFault(
        "what has expired before anybody looked at it is delivered",
        "engine/delivery/selection.py",
        "states[new & (moments <= now)] = EXPIRED",
        "states[new & (moments < 0)] = EXPIRED",
        "tests/behaviour/test_times.py -k embedded",
    ),
    SeededFault(
        "a group of which something is in flight goes to another reader",
        "engine/delivery/ordered_groups.py",
        "if not group.held and not self._is_shared(number):",
        "if not self._is_shared(number):",
        "tests/engine/test_groups_over_restarts.py tests/engine/test_delivery_model.py",
    ),
    SeededFault(
        "a message is let through though one of its sequence is missing",
        "engine/delivery/sequences.py",
        "        if number <= expected:",
        "        if number <= expected + 1:",
        "tests/behaviour/test_order.py -k embedded",
    ),
    # Files of large transactions, the write buffer
    SeededFault(
        "the checksum of a compressed block is not looked at",
        "ltds/reader.py",
        'if checksum(stored) != int(entry["checksum"]):',
        "if False:",
        "tests/ltds",
    ),
    SeededFault(
        "a message at a block's beginning is looked for in the block before",
        "ltds/reader.py",
        "return bisect_right(self._first_indexes, message_index) - 1",
        "return bisect_right(self._first_indexes, message_index - 1) - 1",
        "tests/ltds",
    ),
    SeededFault(
        "a transaction does not tell the write buffer what it holds",
        "writebuffer/buffer.py",
        "if all_bytes >= self._report_at_bytes or all_messages >= self._report_at_messages:",
        "if all_messages >= self._report_at_messages:",
        "tests/engine/test_life_in_the_buffer.py",
    ),
    SeededFault(
        "a block comes before the messages that were put before it",
        "writebuffer/buffer.py",
        "        self.encode(max_block_bytes)\n        self.blocks.append(block)",
        "        self.blocks.append(block)",
        "tests/engine/test_queues.py -k behind_what_was_put",
    ),
    # Salvage and compaction
    SeededFault(
        "what was read behind damage counts for what stands there now",
        "quire/file_salvage/queue_salvage.py",
        "        base = max([end, *lasts])\n",
        "        base = end\n",
        "tests/salvage/test_salvage.py -k behind_damage",
    ),
    SeededFault(
        "a prepared transaction of which a part is lost stays prepared",
        "quire/file_salvage/prepared_salvage.py",
        "        except UNREADABLE:\n            return None",
        "        except UNREADABLE:\n            return record",
        "tests/salvage/test_salvage.py -k prepared",
    ),
    SeededFault(
        "blocks that no record names are not looked for",
        "quire/file_salvage/store_salvage.py",
        "            unplaced.search(records_are_missing=records_are_missing)\n",
        "",
        "tests/salvage/test_salvage.py -k 'unnamed'",
    ),
    SeededFault(
        "the spares that are kept back go with the others",
        "journal/segments.py",
        "going = self._spares[self._kept_back :]\n            del self._spares[self._kept_back :]",
        "going = self._spares[:]\n            del self._spares[:]",
        "tests/engine/test_compaction.py -k 'given_back or emptied'",
    ),
]


def copied(place: Path) -> Path:
    """A copy of what is in the checkout: its files that are tracked, or would be."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        target = place / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_symlink() or (ROOT / name).exists():
            shutil.copy2(ROOT / name, target, follow_symlinks=False)
    return place


def passes(place: Path, tests: str, seed: str) -> bool:
    """Return True if the tests pass in the copy."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    try:
        done = subprocess.run(
            [*command, "-m", "not long", *IN_ALL, "--seed", seed, *shlex.split(tests)],
            cwd=place,
            env=environment | {"PYTHONPATH": str(place)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    if done.returncode > 3:  # there are no such tests
        raise SystemExit(f"pytest {tests}: exit status {done.returncode}")
    return not done.returncode


def is_caught(place: Path, fault: SeededFault, seed: str) -> bool:
    """Put it in, run its tests, and take it out."""
    file = place / fault.path
    text = file.read_text()
    if text.count(fault.sound) != 1:
        raise SystemExit(f"{fault.path} has not exactly one {fault.sound!r}: mend the table")
    file.write_text(text.replace(fault.sound, fault.faulty))
    try:
        return not passes(place, fault.tests, seed)
    finally:
        file.write_text(text)


def main() -> int:
    """The exit status: 0 if all faults were caught."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", default="1", help="where all randomness starts")
    parser.add_argument("--only", default="", help="numbers of faults, such as 3,17")
    parser.add_argument("--list", action="store_true", help="only show the table")
    options = parser.parse_args()
    numbers = {int(number) for number in options.only.split(",") if number}
    faults = [(n, f) for n, f in enumerate(FAULTS, 1) if not numbers or n in numbers]
    if options.list:
        for number, fault in faults:
            print(f"{number:3} {fault.path}: {fault.about} ({fault.tests})")
        return 0
    missed = 0
    sound: dict[str, bool] = {}
    with tempfile.TemporaryDirectory(prefix="quire-faults-") as name:
        place = copied(Path(name))
        for number, fault in faults:
            began = time.monotonic()
            if fault.tests not in sound:
                sound[fault.tests] = passes(place, fault.tests, options.seed)
            if not sound[fault.tests]:
                outcome = "its tests fail without it"
            else:
                outcome = "caught" if is_caught(place, fault, options.seed) else "NOT CAUGHT"
            missed += outcome != "caught"
            seconds = time.monotonic() - began
            print(
                f"{number:3} {outcome:10} {seconds:5.0f} s  {fault.path}: {fault.about}", flush=True
            )
    print(f"{len(faults) - missed} of {len(faults)} faults were caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
