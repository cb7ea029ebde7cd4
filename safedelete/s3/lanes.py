"""Send requests to a store side by side, a few at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import chain
from typing import TypeVar

Part = TypeVar("Part")
Answer = TypeVar("Answer")


def side_by_side(
    parts: Iterable[Part],
    lanes: int,
    admit: Callable[[Part], None],
    send: Callable[[Part], list[Answer]],
) -> list[Answer]:
    """Send each part by a thread, once it is admitted; a single part by the caller's own.

    Args:
        parts: What to send. A next one is asked for when a lane is free.
        lanes: Requests under way at once.
        admit: Called by the caller's thread immediately before a part goes out: what it asks may belong to that
            thread, and one that stands idle takes the part at once. When it raises, nothing more is sent.
        send: Sends a part, and returns what is to be returned of it.

    Returns:
        What came of all parts, in the order in which they ended.

    Raises:
        Exception: What ``admit`` or ``send`` raised, when everything under way has ended.
    """
    waiting = iter(parts)
    first = next(waiting, None)
    if first is None:
        return []
    second = next(waiting, None)
    if second is None:
        admit(first)
        return send(first)
    found: list[Answer] = []
    under_way: set[Future[list[Answer]]] = set()
    with ThreadPoolExecutor(lanes, thread_name_prefix="safedelete-delete") as pool:
        for part in chain((first, second), waiting):
            if len(under_way) == lanes:
                ended, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                found += chain.from_iterable(one.result() for one in ended)
            admit(part)
            under_way.add(pool.submit(send, part))
    return found + list(chain.from_iterable(one.result() for one in under_way))
