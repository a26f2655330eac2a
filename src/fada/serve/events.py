"""What happens, told to whoever listens: a hub between the threads that work and the streams of the browser."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import contextmanager
from typing import Any

_MOST = 1000
"""Events that may wait for one listener; one that is slower loses the oldest and is told to look again."""
PULSE = 15.0
"""Seconds after which a silent stream says that it is alive."""


class Listener:
    """One open stream."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.queue: asyncio.Queue[tuple[str, Any] | None] = asyncio.Queue(_MOST)

    def put(self, event: tuple[str, Any] | None) -> None:
        """Called in the loop."""
        if self.queue.full():
            while not self.queue.empty():
                self.queue.get_nowait()
            self.queue.put_nowait(("lost", {}))
        self.queue.put_nowait(event)


class Events:
    """Publish from any thread, listen in the loop."""

    def __init__(self) -> None:
        self._listeners: set[Listener] = set()
        self._lock = threading.Lock()
        self._closed = False

    def publish(self, kind: str, value: Any) -> None:
        self._tell((kind, value))

    def _tell(self, event: tuple[str, Any] | None) -> None:
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            try:
                listener.loop.call_soon_threadsafe(listener.put, event)
            except RuntimeError:  # its loop has ended
                self._forget(listener)

    def _forget(self, listener: Listener) -> None:
        with self._lock:
            self._listeners.discard(listener)

    def close(self) -> None:
        self._closed = True
        self._tell(None)

    @property
    def count(self) -> int:
        return len(self._listeners)

    @contextmanager
    def listening(self) -> Any:
        """A listener; what is published from now on reaches it."""
        listener = Listener(asyncio.get_running_loop())
        with self._lock:
            self._listeners.add(listener)
        if self._closed:
            listener.put(None)
        try:
            yield listener
        finally:
            self._forget(listener)


async def stream(listener: Listener, wanted: Any = None) -> AsyncIterator[str]:
    """Server-sent events; `wanted(kind, value)` gives whether an event is sent and whether it is the last."""
    yield "retry: 2000\n\n"
    while True:
        try:
            event = await asyncio.wait_for(listener.queue.get(), PULSE)
        except TimeoutError:
            yield ": alive\n\n"
            continue
        if event is None:
            return
        kind, value = event
        send, last = wanted(kind, value) if wanted else (True, False)
        if send:
            yield f"event: {kind}\ndata: {json.dumps(value, ensure_ascii=False)}\n\n"
        if last:
            return
