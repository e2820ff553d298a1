"""A node's side of the stream to the controller: open it, send and receive messages."""

import asyncio
import contextlib
import math
import time
from collections import deque
from collections.abc import Coroutine
from typing import Any, Self

import grpc
import grpc.aio

from trimtab.core import TrimtabError
from trimtab.resize.link.certificates import CONTROLLER
from trimtab.resize.link.joining import Membership
from trimtab.resize.link.wire import METHOD, MOST_BYTES, Hello, Message, MessageStream, Welcome, WireError

_GREETING = 5.0  # s in which the controller has to answer
_REASON = 0.2  # s within which the reason follows the end of a stream
_OPTIONS = (
    ("grpc.ssl_target_name_override", CONTROLLER),
    ("grpc.max_receive_message_length", MOST_BYTES),
    ("grpc.use_local_subchannel_pool", 1),  # every stream has its own connection
)


class StreamError(TrimtabError):
    """The controller cannot be reached, or has closed the stream; the message says why."""


class ControllerStream:
    """A stream to the controller; messages are sent in order."""

    def __init__(self, membership: Membership) -> None:
        self.messages = MessageStream()
        self.answered = -math.inf  # monotonic, s: when the last acknowledged message was sent
        self._address = membership.address
        credentials = grpc.ssl_channel_credentials(
            membership.authority, membership.key, membership.certificate
        )
        self._channel = grpc.aio.secure_channel(membership.address, credentials, options=_OPTIONS)
        self._call: Any = self._channel.stream_stream(METHOD)()
        self._sending = asyncio.Lock()
        self._sent: deque[tuple[int, float]] = deque()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    async def greet(self) -> Welcome:
        """Send hello and receive the pools."""
        try:
            async with asyncio.timeout(_GREETING):
                await self.send(Hello())
                welcome = await self.receive()
        except TimeoutError:
            raise StreamError(f"the controller at {self._address} does not answer") from None
        if not isinstance(welcome, Welcome):
            raise WireError("the controller does not answer with a welcome")
        return welcome

    def send(self, message: Message) -> Coroutine[Any, Any, None]:
        """Send a message when awaited; it gets its number when this is called."""
        packed = self.messages.pack(message)
        self._sent.append((self.messages.sent, time.monotonic()))
        return self._write(packed)

    async def receive(self) -> Message:
        """Wait for the next message."""
        try:
            data = await self._call.read()
        except grpc.RpcError:
            raise await self._error() from None
        if data is grpc.aio.EOF:
            raise await self._error()
        message = self.messages.unpack(data)
        while self._sent and self._sent[0][0] <= self.messages.acknowledged:
            self.answered = self._sent.popleft()[1]
        return message

    async def close(self) -> None:
        self._call.cancel()
        await self._channel.close()

    async def _write(self, packed: bytes) -> None:
        async with self._sending:
            try:
                await self._call.write(packed)
            except (grpc.RpcError, asyncio.InvalidStateError):
                raise await self._error() from None

    async def _error(self) -> StreamError:
        """The reason why the stream has ended."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_REASON):
                if await self._call.code() is grpc.StatusCode.INVALID_ARGUMENT:
                    return StreamError(
                        f"the controller at {self._address} refuses: {await self._call.details()}"
                    )
        return StreamError(f"the controller at {self._address} cannot be reached")
