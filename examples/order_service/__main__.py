"""The order service on the command line: `python -m examples.order_service STORE COMMAND`."""

from __future__ import annotations

import argparse
import json
import logging
import random
import sys
import time

import quire

from .customer import buy
from .orders import CustomerOrder
from .queues import EXPRESS, USUAL, set_up
from .report import is_done, report
from .workers import workers

ITEMS = ("apples", "pears", "plums", "quinces")


def main() -> int:
    parser = argparse.ArgumentParser(prog="order_service", description=__doc__)
    parser.add_argument("store", help="the store's directory")
    commands = parser.add_subparsers(dest="command", required=True)
    order = commands.add_parser("order", help="order something, as many customers would")
    order.add_argument("--count", type=int, default=100, help="orders (default 100)")
    order.add_argument("--first", type=int, default=1, help="number of the first (default 1)")
    order.add_argument("--bad", action="store_true", help="and two that can never be handled")
    waits = commands.add_parser("buy", help="order one after another, and wait for the receipts")
    waits.add_argument("name", help="of the customer, who goes on where an earlier run has ended")
    waits.add_argument("--count", type=int, default=10, help="orders in all (default 10)")
    commands.add_parser("work", help="handle orders until the process is told to end")
    report_parser = commands.add_parser("report", help="what has become of the orders, as JSON")
    report_parser.add_argument("--wait", type=float, default=0.0, help="seconds until all are done")
    again = commands.add_parser("redrive", help="put dead letters back among the orders")
    again.add_argument("text", help="of those whose payload has this in it")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)

    with quire.open(arguments.store) as store:
        set_up(store)
        if arguments.command == "order":
            place(store, arguments.first, arguments.count, is_bad=arguments.bad)
        elif arguments.command == "buy":
            buy(store, arguments.name, arguments.count)
        elif arguments.command == "work":
            workers(store).run()
        elif arguments.command == "redrive":
            text = arguments.text.encode()
            print(store.admin.redrive("orders.dead", lambda letter: text in letter.payload))
        else:
            end = time.monotonic() + arguments.wait
            while not is_done(store) and time.monotonic() < end:
                time.sleep(0.1)
            print(json.dumps(report(store), indent=2))
    return 0


def place(store: quire.Store, first: int, count: int, *, is_bad: bool) -> None:
    """Put all orders in one commit: a customer that is killed has ordered all or nothing."""
    rng = random.Random(first)
    with store.transaction() as txn:
        for number in range(first, first + count):
            order = CustomerOrder(
                number, rng.choice(ITEMS), rng.randrange(100, 10_000), number % 10 == 0
            )
            payload, content_type = order.encode()
            priority = EXPRESS if order.express else USUAL
            txn.put("orders", payload, content_type=content_type, priority=priority)
        if is_bad:
            payload, content_type = CustomerOrder(0, "dynamite", 1).encode()
            txn.put("orders", payload, content_type=content_type, priority=USUAL)
            txn.put("orders", b"{", content_type=content_type, priority=USUAL)


if __name__ == "__main__":
    sys.exit(main())
