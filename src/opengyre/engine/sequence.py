"""One unfinished request inside the embedded engine."""

from dataclasses import dataclass, field

from torch import Tensor

from opengyre.core.reasons import FinishReason
from opengyre.core.records import GenerateRequest
from opengyre.engine.cache import Node


@dataclass(slots=True, eq=False)
class Sequence:
    """Prompt and output so far, and where their KV lies.

    Invariant: `table` holds a block for each token when running and nothing when waiting; its first
    len(nodes) blocks belong to the prefix tree, the rest to this sequence; the KV of the first
    `computed` tokens is there, and computed < len(tokens).
    """

    request: GenerateRequest
    order: int
    """Arrival, from 0: the oldest is served first and loses its blocks last."""
    tokens: list[int]
    computed: int = 0
    nodes: list[Node] = field(default_factory=list)
    table: list[int] = field(default_factory=list)
    imported: Tensor | None = None
    """KV of the first tokens, [layers, tokens, 2 * kv_heads, head_dim], until blocks are there."""

    @property
    def length(self) -> int:
        """Tokens of the answer so far, earlier cells' included: the index of the next one."""
        return self.request.first_index + len(self.tokens) - len(self.request.prompt_ids)

    @property
    def private(self) -> list[int]:
        """Blocks that are not in the prefix tree."""
        return self.table[len(self.nodes) :]

    def finish(self, max_context: int) -> FinishReason | None:
        """Whether the last token ends the answer."""
        sampling = self.request.sampling
        if self.tokens[-1] in sampling.stop_ids:
            return FinishReason.STOP
        if self.length >= sampling.max_new_tokens or len(self.tokens) >= max_context:
            return FinishReason.LENGTH
        return None

    def forget(self) -> None:
        """Keep the tokens, hold no KV."""
        self.computed = 0
        self.nodes = []
        self.table = []
        self.imported = None
