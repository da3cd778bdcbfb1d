"""An engine on a thread of its own, as a Generator for one process.

Invariant: only that thread touches the engine; every chunk of a request reaches its asker in order,
and whoever leaves early has its request cancelled.
"""

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Callable
from types import TracebackType

from opengyre.core.errors import EngineError
from opengyre.core.records import GenerateRequest, TokenChunk
from opengyre.engine.base import Engine

Item = TokenChunk | EngineError


class ThreadedEngine:
    """Use as a context manager; generate() from one event loop."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._todo: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._outboxes: dict[str, Callable[[Item], None]] = {}
        """By request; belongs to the engine's thread."""
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)

    def __enter__(self) -> "ThreadedEngine":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._todo.put(None)
        self._thread.join()

    async def generate(self, request: GenerateRequest) -> AsyncIterator[TokenChunk]:
        """See core.protocols.Generator."""
        loop = asyncio.get_running_loop()
        outbox: asyncio.Queue[Item] = asyncio.Queue()

        def deliver(item: Item) -> None:
            loop.call_soon_threadsafe(outbox.put_nowait, item)

        self._todo.put(lambda: self._submit(request, deliver))
        try:
            while True:
                item = await outbox.get()
                if isinstance(item, EngineError):
                    raise item
                yield item
                if item.finish is not None:
                    return
        finally:
            self._todo.put(lambda: self._cancel(request.request_id))

    def _submit(self, request: GenerateRequest, deliver: Callable[[Item], None]) -> None:
        try:
            self._engine.submit(request)
        except EngineError as error:
            deliver(error)
        else:
            self._outboxes[request.request_id] = deliver

    def _cancel(self, request_id: str) -> None:
        if self._outboxes.pop(request_id, None) is not None:
            self._engine.cancel(request_id)

    def _work(self) -> None:
        while self._take_orders():
            try:
                chunks = self._engine.step()
            except Exception as error:  # noqa: BLE001 — told to everybody who waits
                self._fail(EngineError(f"the engine failed: {type(error).__name__}: {error}"))
                continue
            for chunk in chunks:
                self._deliver(chunk)

    def _take_orders(self) -> bool:
        """Waits while there is nothing to compute; False when it is time to go."""
        while not self._engine.busy or not self._todo.empty():
            order = self._todo.get()
            if order is None:
                self._fail(EngineError("the engine is closed"))
                return False
            order()
        return True

    def _deliver(self, chunk: TokenChunk) -> None:
        deliver = self._outboxes.get(chunk.request_id)
        if deliver is not None:
            deliver(chunk)
        if chunk.finish is not None:
            self._outboxes.pop(chunk.request_id, None)

    def _fail(self, error: EngineError) -> None:
        for request_id, deliver in self._outboxes.items():
            self._engine.cancel(request_id)
            deliver(error)
        self._outboxes.clear()
