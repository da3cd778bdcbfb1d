"""What is simulated: executions as they come, and the machine that serves and trains them.

Invariant: everything that a simulation draws follows from these two records and a seed.
"""

import math

from msgspec import Struct

from opengyre.sim.script import Script


class Workload(Struct, frozen=True, kw_only=True):
    """How executions behave. Counts are means; spreads are standard deviations of logarithms."""

    calls: float
    """Model calls of an execution."""
    answer_tokens: float
    """Sampled by one call."""
    observation_tokens: float
    """Added to the context after each answer by tools and harness."""
    first_prompt_tokens: float
    """Context of the first call."""
    tool_s: float
    """Seconds from an answer to the next call: tools and the harness itself."""
    task_spread: float = 0.0
    """Of an execution's number of calls, between tasks."""
    member_spread: float = 0.0
    """The same between the executions of one task."""
    answer_spread: float = 0.0
    """Of answer_tokens, between calls."""
    tool_spread: float = 0.0
    """Of tool_s, between calls: the heavy tail of builds, tests and downloads."""
    tool_exponential: bool = False
    """Tool times are exponential with that mean, and tool_spread is not used."""
    limit_s: float = math.inf
    """The harness timeout: past it the program is killed and its work is scored as it is."""
    limit_counts_pauses: bool = True
    """Whether that clock runs while a call is held because no cell serves. For an unmodified program
    it does: it knows nothing of a pause."""
    start_s: float = 0.0
    """From the start of an execution to its first call: the workspace, and the program's own start."""
    stop_s: float = 0.0
    """From the last answer to the end of the program."""
    evaluation_s: float = 0.0
    """From the end of the program to the verdict; it needs no cell."""
    trained_share: float = 1.0
    """Tokens that a training cell computes for an execution over the tokens of its last context
    and answers: below 1 where prefixes are shared, above where sub-agents add to it."""
    no_spread_share: float = 0.0
    """Groups that give no gradient because their rewards are all the same."""
    excluded_share: float = 0.0
    """Executions without a score: they are in no step's tokens."""
    recorded: tuple[tuple[Script, ...], ...] = ()
    """Groups of executions that took place, instead of drawn ones. Then only the limit, its clock and
    evaluation_s are taken from the fields above."""
    recorded_in_order: bool = True
    """The i-th group is the i-th recorded one, as far as they reach; else each is drawn from them."""


class Machine(Struct, frozen=True, kw_only=True):
    """How fast cells are. All cells are equal; how many there are and what each can hold is in the plan."""

    decode_alone_tokens_s: float
    """Tokens a second of one call that has a cell for itself."""
    decode_full_tokens_s: float
    """Tokens a second of a whole cell under many calls: the limit that it tends to."""
    prefill_tokens_s: float = math.inf
    """Prompt tokens a second of a whole cell; they delay the calls beside them."""
    train_tokens_s: float
    """Tokens a second of one training cell, forward and backward."""
    micro_step_tokens: float = math.inf
    """Tokens of a micro-step: the unit that a training cell takes from the queue."""
    step_s: float = 0.0
    """Of the optimiser step: gradients summed, weights updated."""
    publish_s: float = 0.0
    """From the last step of a burst until every engine has the weights."""
    to_training_s: float = 0.0
    """Of a switch from rollout to training."""
    to_rollout_s: float = 0.0
    """Of a switch back."""
    restart_s: float = 0.0
    """From the loss of a cell until it serves again."""
    mean_life_s: float = math.inf
    """Of a cell until it is lost; exponential."""
    moves_kv: bool = True
    """Whether a call that changes its cell takes its KV cache along."""
    kv_move_tokens_s: float = math.inf
    """Context tokens a second that a move of one call takes along."""
    publish_drops_prefixes: bool = True
    """Whether a new version makes every cached prefix useless, running calls included."""

    def decode_tokens_s(self, calls: int) -> float:
        """Tokens a second of each of so many calls on one cell."""
        alone = self.decode_alone_tokens_s
        return alone / (1.0 + (calls - 1) * alone / self.decode_full_tokens_s)

    @property
    def prefill_weight(self) -> float:
        """Decoded tokens that take as long, on a full cell, as one prompt token."""
        if math.isinf(self.prefill_tokens_s):
            return 0.0
        return self.decode_full_tokens_s / self.prefill_tokens_s


def lognormal(mean: float, spread: float, normal: float) -> float:
    """A log-normal value of that mean from a standard normal one."""
    return mean * math.exp(spread * normal - spread * spread / 2)
