"""A cell without torch: `python -m tests.cluster.scripted_cell --fd N --cpus A`."""

import argparse
import socket
import time

from opengyre.cluster import wire
from opengyre.cluster.cell import Channel, serve
from opengyre.core.errors import LearnerError
from opengyre.core.records import TokenChunk


class ScriptedWorker:
    """Save fails, LoadVersion crashes, Pause hangs; the rest is done at once."""

    def __init__(self) -> None:
        self.stopped = False
        self._left: dict[str, int] = {}

    @property
    def busy(self) -> bool:
        return bool(self._left)

    def do(self, command: wire.Command) -> wire.Result:
        match command:
            case wire.Generate(request=request):
                self._left[request.request_id] = request.sampling.max_new_tokens
                return wire.Accepted(with_kv=False)
            case wire.Cancel(request_id=request_id):
                self._left.pop(request_id, None)
            case wire.Save():
                raise LearnerError("the disk is full")
            case wire.LoadVersion():
                raise ZeroDivisionError
            case wire.Pause():
                time.sleep(1000)  # noqa: TID251 - a wedged cell
            case wire.Stop():
                self.stopped = True
            case _:
                pass
        return wire.Done()

    def generate(self) -> list[TokenChunk]:
        chunks = []
        for name in list(self._left):
            self._left[name] -= 1
            chunks.append(TokenChunk(request_id=name, token_ids=[1], logprobs=[0.0], version=0))
            if not self._left[name]:
                del self._left[name]
        return chunks


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int)
    parser.add_argument("--cpus")
    serve(Channel(socket.socket(fileno=parser.parse_args().fd)), ScriptedWorker())
