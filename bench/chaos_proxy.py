"""A line that can be made bad: TCP on this machine in, the server's Unix socket out.

Every part reaches Postgres and Redis through one `Route` each, so that a fault of the network is a
change of a route's `mode`, with the server itself well. Runs on a thread of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

CHUNK = 65_536

PASS, DELAY, DROP, HALF_OPEN, LOSE_ANSWERS = "pass", "delay", "drop", "half open", "lose answers"
"""What a route does to what it carries: nothing; holds each piece up; ends every connection; keeps
connections and carries nothing; carries questions and, now and then, ends instead of answering."""

DELAY_S = 0.05
"""How long a piece is held up."""

LOST_SHARE, TELLING_LOST_SHARE = 0.1, 0.5
"""Of the answers, so many are lost; and of those that tell what was taken for who asked."""


class Route:
    """All connections to one server."""

    def __init__(self, socket: Path, seed: int, telling: bytes = b"") -> None:
        """`telling`: what stands in answers whose loss matters most; empty: all are alike."""
        self.socket, self.telling = socket, telling
        self.port = 0
        self.mode = PASS
        self._chance = random.Random(seed)
        self._lines: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._moved = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def start(self) -> int:
        """Listen; returns the port."""
        self._thread.start()
        self.port = self._ask(self._listen())
        return self.port

    def stop(self) -> None:
        """End all connections and listen no more."""
        self._ask(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5.0)

    def set(self, mode: str) -> None:
        """From now on behave like this."""
        self._ask(self._set(mode))

    def _ask(self, question: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(question, self._loop).result(10.0)

    async def _listen(self) -> int:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=CHUNK)
        return int(server.sockets[0].getsockname()[1])

    async def _set(self, mode: str) -> None:
        # a connection that carried nothing for a while is dead to both sides, as after a cable cut
        if DROP in (mode, self.mode) or self.mode == HALF_OPEN:
            for line in list(self._lines):
                line.transport.abort()
        self.mode = mode
        self._moved.set()
        self._moved = asyncio.Event()

    async def _end(self) -> None:
        await self._set(DROP)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.wait(others, timeout=5.0) if others else None

    async def _serve(self, asks: asyncio.StreamReader, told: asyncio.StreamWriter) -> None:
        if self.mode == DROP:
            told.transport.abort()
            return
        self._lines.add(told)
        try:
            answers, server = await asyncio.open_unix_connection(str(self.socket), limit=CHUNK)
        except OSError:
            told.transport.abort()
            self._lines.discard(told)
            return
        self._lines.add(server)
        pumps = [
            asyncio.ensure_future(self._pump(asks, server, answering=False)),
            asyncio.ensure_future(self._pump(answers, told, answering=True)),
        ]
        with contextlib.suppress(asyncio.CancelledError):  # the route is stopped
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        for line in (told, server):
            self._lines.discard(line)
            line.transport.abort()

    def _is_lost(self, chunk: bytes) -> bool:
        telling = self.telling and self.telling in chunk
        return self._chance.random() < (TELLING_LOST_SHARE if telling else LOST_SHARE)

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, answering: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while chunk := await source.read(CHUNK):
                if self.mode == DELAY:
                    await asyncio.sleep(DELAY_S)
                if self.mode == LOSE_ANSWERS and answering and self._is_lost(chunk):
                    return
                while self.mode == HALF_OPEN:
                    await self._moved.wait()
                sink.write(chunk)
                await sink.drain()
            # all that was written goes out before the connection is ended
            if sink.can_write_eof():
                sink.write_eof()
            await asyncio.sleep(0.05)
