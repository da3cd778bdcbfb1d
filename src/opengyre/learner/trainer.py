"""A training cell's replica: micro-steps into gradients, gradients into the next weights.

Gradients are sums over executions and live in persistent buffers, so cells add theirs and only
`step` divides. The optimiser exists once somebody steps: a satellite never has one. A step that
cannot be taken raises before anything has changed.
"""

from collections.abc import Iterable, Iterator
from itertools import islice, pairwise

import torch
from msgspec.structs import replace
from torch import Tensor

from opengyre.config.run import LearnerSection
from opengyre.core.errors import LearnerError
from opengyre.core.records import MicroStep, Trajectory
from opengyre.learner.attention import plan
from opengyre.learner.gspo import execution_tokens, gspo, gspo_batch
from opengyre.learner.layout import Mode, layout
from opengyre.learner.logprobs import target_logprobs
from opengyre.learner.stats import MicroStats, StepStats
from opengyre.model.qwen3 import Qwen3
from opengyre.tree.pack import PackedTree

NORM_FLOOR = 1e-6
"""Keeps the clipping factor finite for a zero gradient (as in torch's clip_grad_norm_)."""

Named = Iterable[tuple[str, Tensor]]


class Trainer:
    """One replica of the policy in training."""

    def __init__(
        self, model: Qwen3, settings: LearnerSection, temperature: float, mode: Mode = "tree"
    ) -> None:
        self.model = model
        self.mode: Mode = mode
        self._settings = settings
        self._temperature = temperature
        self._optimiser: torch.optim.AdamW | None = None
        self._parameters = dict(model.named_parameters())
        self.zero()

    def accumulate(self, micro: MicroStep) -> MicroStats:
        """Add the micro-step's gradient (a sum over executions) to the buffers.

        Raises LearnerError for tokens or positions that the model does not have.
        """
        trajectories = [t for sample in micro.samples for t in sample.trajectories]
        self._check_fits(trajectories)
        nodes = layout([t.token_ids for t in trajectories], self.mode)
        stats = MicroStats(
            executions=sum(
                sum(len(t.owned) for t in s.trajectories) / max(1, execution_tokens(s))
                for s in micro.samples
            ),
            trajectories=len(trajectories),
            trained_tokens=sum(len(t.owned) for t in trajectories),
            packed_tokens=len(nodes.token_ids),
            expanded_tokens=sum(len(t.token_ids) for t in trajectories),
        )
        return stats + self._backward(micro, trajectories, nodes) if stats.trained_tokens else stats

    def on_policy(self, micro: MicroStep) -> MicroStep:
        """The micro-step as if these weights had sampled it. Raises LearnerError as accumulate()."""
        trajectories = [t for sample in micro.samples for t in sample.trajectories]
        self._check_fits(trajectories)
        nodes = layout([t.token_ids for t in trajectories], self.mode)
        with torch.no_grad():
            found = iter(self._owned_logprobs(trajectories, nodes).tolist())
        samples = []
        for sample in micro.samples:
            own = [
                replace(t, behaviour_logprobs=list(islice(found, len(t.owned))))
                for t in sample.trajectories
            ]
            samples.append(replace(sample, trajectories=own))
        return replace(micro, samples=samples)

    def gradients(self) -> list[tuple[str, Tensor]]:
        """The buffers themselves, under the weights' names and in their order."""
        return [(name, _buffer(p)) for name, p in self._parameters.items()]

    def zero(self) -> None:
        """Forget all gradients."""
        for p in self._parameters.values():
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            p.grad.zero_()

    def add_gradients(self, named: Named) -> None:
        """Add another replica's sums. Raises LearnerError, before adding any, when they do not match."""
        for name, tensor in list(self._matched(named, "gradients")):
            _buffer(self._parameters[name]).add_(tensor)

    def load_weights(self, named: Named) -> None:
        """Replace the weights. Raises LearnerError, before changing any, when they do not match."""
        for name, tensor in list(self._matched(named, "weights")):
            self._parameters[name].data.copy_(tensor)

    def step(self, executions: int, learning_rate: float) -> StepStats:
        """Step AdamW on the mean gradient over executions, clipped by its global norm; then zero.

        Raises LearnerError for a non-finite gradient; weights, optimiser and buffers stay as they were
        (zero() forgets the bad gradient).
        """
        assert executions > 0, "a step needs executions"
        buffers = [grad for _, grad in self.gradients()]
        norm = float(torch.nn.utils.get_total_norm(buffers)) / executions
        if not torch.isfinite(torch.tensor(norm)):
            raise LearnerError(
                f"the gradient over {executions} executions has norm {norm}: no step"
            )
        limit = self._settings.gradient_clip
        torch._foreach_mul_(buffers, min(1.0, limit / (norm + NORM_FLOOR)) / executions)
        optimiser = self._made_optimiser()
        for group in optimiser.param_groups:
            group["lr"] = learning_rate
        optimiser.step()
        self.zero()
        return StepStats(
            executions=executions,
            learning_rate=learning_rate,
            gradient_norm=norm,
            clipped=norm > limit,
        )

    def prepare(self) -> None:
        """Build the optimiser now: a process's first one takes seconds of imports."""
        self._made_optimiser()

    def optimiser_state(self) -> dict[str, Tensor]:
        """AdamW's state as flat tensors "weight name:part"; empty before the first step."""
        if self._optimiser is None:
            return {}
        return {
            f"{name}:{part}": value
            for name, p in self._parameters.items()
            for part, value in sorted(self._optimiser.state[p].items())
        }

    def load_optimiser_state(self, state: dict[str, Tensor]) -> None:
        """Go on from a saved state. Raises LearnerError for a weight that the model does not have."""
        if not state:
            self._optimiser = None
            return
        names = {key.rpartition(":")[0] for key in state}
        if names != self._parameters.keys():
            odd = sorted(names ^ self._parameters.keys())
            raise LearnerError(
                f"optimiser state does not fit: missing or unknown {', '.join(odd[:3])}"
            )
        optimiser = self._made_optimiser()
        for key, value in state.items():
            name, _, part = key.rpartition(":")
            p = self._parameters[name]
            # AdamW counts steps on the CPU wherever the weights are
            device = p.device if value.dim() else value.device
            optimiser.state[p][part] = value.to(device, copy=True)

    def _backward(
        self, micro: MicroStep, trajectories: list[Trajectory], nodes: PackedTree
    ) -> MicroStats:
        logprobs = self._owned_logprobs(trajectories, nodes)
        batch = gspo_batch(micro.samples, logprobs.dtype, logprobs.device)
        result = gspo(logprobs, batch, self._settings.clip_low, self._settings.clip_high)
        result.loss.backward()  # type: ignore[no-untyped-call]
        return MicroStats(
            loss_sum=float(result.loss.detach()),
            clipped_tokens=result.clipped_tokens,
            ratio_sum=result.ratio_sum,
            mismatch_sum=result.mismatch_sum,
            surprise_sum=result.surprise_sum,
        )

    def _owned_logprobs(self, trajectories: list[Trajectory], nodes: PackedTree) -> Tensor:
        """[K] log-probabilities of all owned tokens, trajectory by trajectory."""
        owned = [
            path[i] for t, path in zip(trajectories, nodes.paths, strict=True) for i in t.owned
        ]
        targets = sorted(set(owned))  # a node that two executions own is computed once
        slot = {node: i for i, node in enumerate(targets)}
        above = torch.tensor([nodes.parents[node] for node in targets], device=self._device)
        tokens = torch.tensor([nodes.token_ids[node] for node in targets], device=self._device)
        needed = forward(self.model, nodes).index_select(0, above)
        logprobs = target_logprobs(self.model, needed, tokens, self._temperature)
        return logprobs.index_select(
            0, torch.tensor([slot[node] for node in owned], device=self._device)
        )

    def _check_fits(self, trajectories: list[Trajectory]) -> None:
        shape = self.model.shape
        for t in trajectories:
            if len(t.token_ids) > shape.max_position_embeddings:
                raise LearnerError(
                    f"trajectory {t.leaf_call_id} has {len(t.token_ids)} tokens; "
                    f"the model has {shape.max_position_embeddings} positions"
                )
            if not 0 <= min(t.token_ids) <= max(t.token_ids) < shape.vocab_size:
                raise LearnerError(
                    f"trajectory {t.leaf_call_id} has token ids outside [0, {shape.vocab_size})"
                )
            owned = pairwise([*t.owned, len(t.token_ids)])
            if len(t.behaviour_logprobs) != len(t.owned) or not all(0 < a < b for a, b in owned):
                raise LearnerError(f"trajectory {t.leaf_call_id} owns tokens that it does not have")

    def _matched(self, named: Named, what: str) -> Iterator[tuple[str, Tensor]]:
        tensors = dict(named)
        odd = sorted(tensors.keys() ^ self._parameters.keys()) or sorted(
            name for name, p in self._parameters.items() if tensors[name].shape != p.shape
        )
        if odd:
            raise LearnerError(f"{what} do not fit: missing, unknown or misshapen {odd[:3]}")
        yield from tensors.items()

    def _made_optimiser(self) -> torch.optim.AdamW:
        if self._optimiser is None:
            self._optimiser = torch.optim.AdamW(
                list(self._parameters.values()), weight_decay=self._settings.weight_decay
            )
        return self._optimiser

    @property
    def _device(self) -> torch.device:
        return self.model.head_weight().device


def forward(model: Qwen3, nodes: PackedTree) -> Tensor:
    """Hidden states [N, hidden] of all nodes, each under its ancestors alone."""
    weight = model.head_weight()
    return model.hidden(
        torch.tensor(nodes.token_ids, device=weight.device),
        torch.tensor(nodes.positions, device=weight.device),
        plan(nodes.segments, weight.dtype, weight.device),
    )


def _buffer(parameter: torch.nn.Parameter) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad
