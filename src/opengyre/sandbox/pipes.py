"""Bounded reading of a process's output.

Invariant: at most `limit` bytes are held, whatever is written, and the writer is never blocked.
"""

import asyncio
import os
from collections.abc import Callable

CHUNK = 64 * 1024
"""The size of a Linux pipe: one read empties it."""


class Tail:
    """The last bytes written to a pipe of ours. Give `writer` to the process, then call start()."""

    def __init__(self, limit: int, heard: Callable[[bytes], None] | None = None) -> None:
        self._limit = limit
        self._heard = heard
        self._kept = bytearray()
        self._reader, self.writer = os.pipe()
        self._ended = asyncio.get_running_loop().create_future()

    def start(self) -> None:
        """Close our copy of the writing end and read."""
        os.close(self.writer)
        self.writer = -1
        os.set_blocking(self._reader, False)
        asyncio.get_running_loop().add_reader(self._reader, self._read)

    async def ended(self) -> None:
        """Return once every writer has closed the pipe."""
        await asyncio.shield(self._ended)

    def text(self) -> bytes:
        return bytes(self._kept)

    def close(self) -> None:
        if self.writer != -1:
            os.close(self.writer)
            self.writer = -1
        if self._reader != -1:
            asyncio.get_running_loop().remove_reader(self._reader)
            os.close(self._reader)
            self._reader = -1

    def _read(self) -> None:
        try:
            piece = os.read(self._reader, CHUNK)
        except BlockingIOError:
            return
        if piece:
            self._keep(piece)
            return
        asyncio.get_running_loop().remove_reader(self._reader)
        if not self._ended.done():
            self._ended.set_result(None)

    def _keep(self, piece: bytes) -> None:
        self._kept += piece
        if len(self._kept) > self._limit:
            del self._kept[: len(self._kept) - self._limit]
        if self._heard is not None:
            self._heard(piece)
