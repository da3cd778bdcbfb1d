"""What a micro-step and an optimiser step report; sums, so that cells' reports add up."""

from msgspec import Struct


class MicroStats(Struct, frozen=True, kw_only=True):
    """One micro-step, or several added. Made by learner; read by cluster, app and report."""

    executions: float = 0.0
    """Shares of executions: one split over micro-steps adds up to 1."""
    trajectories: int = 0
    trained_tokens: int = 0
    """Owned tokens: targets of the loss."""
    packed_tokens: int = 0
    """Tokens computed."""
    expanded_tokens: int = 0
    """Tokens that separate sequences would compute."""
    loss_sum: float = 0.0
    """Over executions."""
    clipped_tokens: int = 0
    """Owned tokens of trajectories whose ratio was clipped."""
    ratio_sum: float = 0.0
    """Sums over owned tokens: the trajectory's ratio, |log p - log p_behaviour|, -log p."""
    mismatch_sum: float = 0.0
    surprise_sum: float = 0.0

    def __add__(self, other: "MicroStats") -> "MicroStats":
        pairs = {f: getattr(self, f) + getattr(other, f) for f in self.__struct_fields__}
        return MicroStats(**pairs)

    @property
    def clip_share(self) -> float:
        """Share of owned tokens whose trajectory was clipped."""
        return self.clipped_tokens / max(1, self.trained_tokens)

    @property
    def mean_ratio(self) -> float:
        """Mean sequence ratio, by tokens; 1 when nothing was trained."""
        return self.ratio_sum / self.trained_tokens if self.trained_tokens else 1.0

    @property
    def mismatch(self) -> float:
        """Mean |log p - log p_behaviour|: engine against learner while weights are the same."""
        return self.mismatch_sum / max(1, self.trained_tokens)

    @property
    def entropy(self) -> float:
        """Mean -log p of sampled tokens, in nats: an estimate of the policy's entropy."""
        return self.surprise_sum / max(1, self.trained_tokens)


class StepStats(Struct, frozen=True, kw_only=True):
    """One optimiser step. Made by learner; read by cluster, app and report."""

    executions: int
    learning_rate: float
    gradient_norm: float
    """Global norm of the mean gradient, before clipping."""
    clipped: bool
    """The norm was above the limit."""
