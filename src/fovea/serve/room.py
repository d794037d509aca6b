"""How much all requests together hold in memory: the bodies that come, and the pictures in them once they are decoded.

Bodies that find no room are refused, since more of each keeps coming. Pictures wait for theirs: who has it needs
nothing that another holds, so all come to an end."""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from fovea.pictures import MAX_PIXELS
from fovea.serve.options import Limits
from fovea.serve.patience import Patience
from fovea.serve.refusing import busy

FULL = "too much is being sent at once: ask again later"


class Room:
    """Of one event loop: nobody else changes it."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.bytes, self.pixels = limits, 0, 0
        self.waiting = deque[tuple[int, asyncio.Future[None]]]()  # the first comes first, however large

    @contextmanager
    def share(self) -> Iterator["Share"]:
        """What one request takes; it is given back at its end."""
        share = Share(self)
        try:
            yield share
        finally:
            self.bytes -= share.bytes
            self.pixels -= share.pixels
            self.let_in()

    def fits(self, pixels: int) -> bool:
        return not self.pixels or self.pixels + pixels <= MAX_PIXELS

    def let_in(self) -> None:
        while self.waiting and (self.waiting[0][1].done() or self.fits(self.waiting[0][0])):
            pixels, waits = self.waiting.popleft()
            if not waits.done():
                self.pixels += pixels
                waits.set_result(None)


class Share:
    """Of the room, one request's."""

    def __init__(self, room: Room) -> None:
        self.room, self.bytes, self.pixels = room, 0, 0

    def take(self, count: int) -> None:
        """Bytes of the body."""
        if self.room.bytes + count > max(self.room.limits.coming, self.room.limits.bytes):
            raise busy(FULL)
        self.room.bytes += count
        self.bytes += count

    async def wait_for(self, pixels: int, patience: Patience) -> None:
        """Of the picture, before it is decoded."""
        room, waits = self.room, asyncio.get_running_loop().create_future()
        room.waiting.append((pixels, waits))
        room.let_in()
        try:
            await patience.wait(waits)
        finally:
            if not waits.cancel() and not waits.cancelled():  # it was let in
                self.pixels += pixels
