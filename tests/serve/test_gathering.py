"""What is written at one moment is sent at once, and nothing is sent after the end."""

import asyncio
from typing import Any

from trimtab.serve.gathering import Gathering


class Sent:
    """A transport that notes what it is given."""

    def __init__(self) -> None:
        self.pieces: list[list[bytes]] = []
        self.closed = False
        self.protocol: Any = None

    def writelines(self, pieces: list[bytes]) -> None:
        assert not self.closed
        self.pieces.append(list(pieces))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol


def test_a_head_and_a_body_are_sent_together_and_the_next_answer_after_them() -> None:
    async def main() -> None:
        sent = Sent()
        to = Gathering(sent, asyncio.get_running_loop())
        to.write(b"head")
        to.write(b"body")
        assert sent.pieces == []
        await asyncio.sleep(0)
        to.write(b"next")
        await asyncio.sleep(0)
        assert sent.pieces == [[b"head", b"body"], [b"next"]]

    asyncio.run(main())


def test_what_waits_is_sent_before_the_end_and_before_others_speak_and_no_more_after() -> None:
    async def main() -> None:
        sent = Sent()
        to = Gathering(sent, asyncio.get_running_loop())
        to.write(b"switching")
        to.set_protocol("other")
        assert sent.pieces == [[b"switching"]]
        to.write(b"bye")
        to.close()
        to.write(b"too late")
        await asyncio.sleep(0)
        assert sent.pieces == [[b"switching"], [b"bye"]]
        assert sent.closed

    asyncio.run(main())
