"""Many requests, a bounded number of them at a time."""

from __future__ import annotations

import heapq
import itertools
import queue
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, Generator, Iterable, List, Optional, Tuple, Union

from ._protocol import Accepted, Call, Event, JobCall
from .client import Client
from .errors import BadRequest, DeadlineExceeded, InternalError, NotReady, Overloaded, QuernError, ServiceError, WorkerLost

RETRY_S, RETRY_MAX_S = 0.05, 2.0

# Errors of one request, beside which the others go on.
_OWN = (BadRequest, DeadlineExceeded, InternalError, WorkerLost)

Progress = Union[bool, Callable[..., Any]]
Request = Dict[str, Any]
# Yields requests, is sent the reply to each, and returns at the end.
Steps = Generator[Request, Any, None]


class Bar:
    """tqdm where it is installed and wanted, else nothing."""

    def __init__(self, wanted: Progress, total: int, desc: str) -> None:
        self._bar: Any = None
        if callable(wanted):
            self._bar = wanted(total=total, desc=desc)
        elif wanted:
            try:
                from tqdm.auto import tqdm
            except ImportError:
                return
            self._bar = tqdm(total=total, desc=desc, dynamic_ncols=True)

    def step(self) -> None:
        if self._bar is not None:
            self._bar.update(1)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


class Item:
    """What takes requests, one after the other."""

    def __init__(self, index: int, steps: Steps) -> None:
        self.index = index
        self.steps = steps
        self.wait_s = RETRY_S
        self.refused_at: Optional[float] = None     # first of the refusals since the last reply
        self.request: Optional[Request] = None      # the one to be sent, or under way
        self.call: Optional[Call] = None

    def go_on(self, reply: Any) -> bool:
        """Makes the next request; False: there is none."""
        try:
            self.request = self.steps.send(reply)
        except StopIteration:
            self.request = None
        return self.request is not None


class Pipeline:
    """Keeps a bounded number of requests in flight, and goes on when the service's queue is full.

    Args:
        most: requests in flight.
        failed: is called with an item's index and its error, and the others go on; None: the error is raised.
    """

    def __init__(self, client: Client, most: int, failed: Optional[Callable[[int, ServiceError], None]] = None) -> None:
        self._failed = failed
        self._connection = client._connection
        self._most = most
        self._window = float(most)
        self._replies: "queue.SimpleQueue[Tuple[Item, Event]]" = queue.SimpleQueue()
        self._running: Dict[int, Item] = {}

    def run(self, items: Iterable[Item], bar: Bar) -> None:
        """Takes each item through its steps; an error cancels all that are under way, and is raised."""
        source = iter(items)
        again: Deque[Item] = deque()
        waiting: List[Tuple[float, int, Item]] = []
        order = itertools.count()
        exhausted = False
        try:
            while True:
                now = time.monotonic()
                while waiting and waiting[0][0] <= now:
                    again.append(heapq.heappop(waiting)[2])
                while len(self._running) < int(self._window) and (again or not exhausted and not waiting):
                    item = again.popleft() if again else next(source, None)
                    if item is None:
                        exhausted = True
                        break
                    if item.request is None and not item.go_on(None):
                        bar.step()
                        continue
                    if not self._send(item):
                        bar.step()
                if exhausted and not self._running and not waiting and not again:
                    return
                try:
                    item, reply = self._replies.get(timeout=max(0.0, waiting[0][0] - now) if waiting else None)
                except queue.Empty:
                    continue
                if isinstance(reply, QuernError):
                    if not self._waits(item, reply):
                        bar.step()
                        continue
                    heapq.heappush(waiting, (time.monotonic() + item.wait_s, next(order), item))
                    item.wait_s = min(2 * item.wait_s, RETRY_MAX_S)
                    continue
                if isinstance(reply, Accepted):
                    continue
                del self._running[item.index]
                self._window = min(float(self._most), self._window + 0.25)
                item.wait_s, item.refused_at = RETRY_S, None
                if item.go_on(reply):
                    again.appendleft(item)
                else:
                    bar.step()
        finally:
            for item in self._running.values():
                if isinstance(item.call, JobCall):
                    self._connection.abandon(item.call)
                elif item.call is not None:
                    self._connection.forget(item.call)
            self._running.clear()

    def _send(self, item: Item) -> bool:
        """False: the request is refused unsent, and the item has failed."""
        request = item.request
        assert request is not None
        self._running[item.index] = item

        def sink(reply: Event) -> None:
            self._replies.put((item, reply))
        try:
            item.call = JobCall(request, sink) if request["op"] == "submit" else Call(request, sink)
        except ServiceError as e:
            return self._waits(item, e)
        except ValueError as e:
            raise ValueError(f"prompt {item.index}: {e}") from None
        self._connection.start(item.call)
        return True

    def _waits(self, item: Item, e: QuernError) -> bool:
        """Takes an item with an error off the list.  True: the service is busy or away, and the item is to be tried again;
        False: the item has failed, and `failed` knows; any other error is raised."""
        del self._running[item.index]
        now = time.monotonic()
        item.refused_at = item.refused_at or now
        passing = isinstance(e, Overloaded) or (isinstance(e, NotReady) and
                                                now - item.refused_at < self._connection.reconnect_timeout)
        if not passing:
            if isinstance(e, ServiceError):
                e.prompt_index = item.index
            if self._failed and isinstance(e, _OWN):
                self._failed(item.index, e)
                return False
            raise e
        self._window = max(1.0, min(self._window, float(len(self._running))) / 2 if isinstance(e, Overloaded)
                           else self._window)
        return True
