"""Every reason that is counted somewhere, as enums: one docstring a member."""

import enum


class Role(enum.StrEnum):
    """The part a branch plays in its execution."""

    MAIN = "main"
    """The agent's own conversation."""
    MAIN_SUMMARY = "main-summary"
    """The agent's compaction of its own conversation."""
    SUB_AGENT = "sub-agent"
    """A conversation that the agent started for a part of the work."""
    SUB_AGENT_SUMMARY = "sub-agent-summary"
    """The compaction of a sub-agent's conversation."""
    AUXILIARY = "auxiliary"
    """Titles, probes, memory extraction: recorded, never trained."""
    UNKNOWN = "unknown"
    """No rule matched: recorded, not trained."""


class FinishReason(enum.StrEnum):
    """Why a generation ended."""

    STOP = "stop"
    """A stop token was sampled."""
    LENGTH = "length"
    """The call's or the context's token limit was reached."""
    ABORT = "abort"
    """Cancelled; what was generated so far is delivered."""


class ForkReason(enum.StrEnum):
    """Why a call did not simply extend the newest recorded context."""

    NEW_CONVERSATION = "new-conversation"
    """No message of it was recorded before: a sub-agent, an auxiliary call, a fresh start."""
    COMPACTION = "compaction"
    """The harness replaced its history by a summary, or asked for one."""
    HISTORY_EDITED = "history-edited"
    """Messages that were recorded were dropped, merged or changed."""
    SIBLING = "sibling"
    """A second answer was asked for the same context (a retry after delivery, a parallel turn)."""
    RENDER_MISMATCH = "render-mismatch"
    """The recorded tokens could not be shown to equal the canonical rendering."""


class Ending(enum.StrEnum):
    """How an execution's program came to its end."""

    FINISHED = "finished"
    """It exited with 0."""
    NONZERO_EXIT = "nonzero-exit"
    """It exited with another code after at least one complete reply."""
    HARNESS_TIMEOUT = "harness-timeout"
    """The task's limit for the agent was reached and the program was killed."""
    CONTEXT_LIMIT = "context-limit"
    """The policy's context was full."""
    NEVER_STARTED = "never-started"
    """It ended before the proxy served one complete reply."""
    SANDBOX_DIED = "sandbox-died"
    """The sandbox could not be made or broke."""
    MODEL_FAILED = "model-failed"
    """A model call failed through our fault."""
    OVERALL_TIMEOUT = "overall-timeout"
    """Past the outer limit, set-up and evaluation included."""
    CANCELLED = "cancelled"
    """The run stopped it."""


class VerdictKind(enum.StrEnum):
    """What may be done with an execution."""

    SCORED = "scored"
    """The reward is real and may be trained on."""
    INFRASTRUCTURE_FAILURE = "infrastructure-failure"
    """Our fault: retried in budget, then excluded."""
    EVALUATOR_FAILURE = "evaluator-failure"
    """The evaluator's fault: scored again in budget, then excluded."""
    OVERALL_TIMEOUT = "overall-timeout"
    """Dropped."""
    CANCELLED = "cancelled"
    """Stopped by the run; excluded."""


class Untrained(enum.StrEnum):
    """Why sampled tokens are not trained, beside their role, their verdict and J_max."""

    NO_SPREAD = "no-spread"
    """The group's scored executions do not differ in reward."""
    TOKEN_BUDGET = "token-budget"
    """They lie deeper than the longest trajectory that a micro-step may hold."""
    HELD_OUT = "held-out"
    """Sampled on a held-out task: never trained."""
    GROUP_UNFINISHED = "group-unfinished"
    """Some member of the group has no verdict yet."""
    NO_VERDICT = "no-verdict"
    """Recorded without a task: nothing says how good it was."""


class CellRole(enum.StrEnum):
    """What a cell does now."""

    ROLLOUT = "rollout"
    """Serves model calls."""
    SWITCHING = "switching"
    """Between the two; takes no work."""
    TRAINING = "training"
    """Takes micro-steps."""
    LOST = "lost"
    """Its process is gone."""
