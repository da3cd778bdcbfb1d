"""Which server is at an address.

Invariant: only a server that answers as SGLang or vLLM does is spoken to.
"""

from opengyre.core.errors import UserError
from opengyre.engine.upstream.base import (
    Facts,
    ServerApi,
    ServerLostError,
    ServerRefusedError,
)
from opengyre.engine.upstream.sglang import SGLangApi
from opengyre.engine.upstream.versions import VersionBook
from opengyre.engine.upstream.vllm import VllmApi
from opengyre.engine.upstream.wire import Wire


async def find_server(wire: Wire, versions: VersionBook) -> tuple[ServerApi, Facts]:
    """The server's API and what it says of itself. Raises UserError."""
    kinds: list[ServerApi] = [SGLangApi(wire, versions), VllmApi(wire, versions)]
    said = []
    for api in kinds:
        try:
            return api, await api.facts()
        except ServerLostError as error:
            raise UserError(
                f"a running server at {wire.url}",
                str(error),
                "start SGLang or vLLM there, or mend --upstream",
            ) from error
        except ServerRefusedError as error:
            said.append(str(error))
    raise UserError(
        f"a SGLang or vLLM server at {wire.url}",
        f"neither: {'; '.join(said)}",
        "pass the address of the server itself, not of a gateway in front of it",
    )
