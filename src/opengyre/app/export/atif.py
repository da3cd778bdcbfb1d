"""One execution as an ATIF document: the agent's conversation, with all other branches embedded.

The Agent Trajectory Interchange Format is Harbor's; this follows its version 1.7. Invariant: every
call of the execution is an agent step of its own exactly once; wherever another branch repeats it as
its beginning, the step is marked as copied context, as is history that the harness rewrote.
"""

from dataclasses import dataclass, field
from typing import Any

from opengyre.app.export.turns import Written, turns_of
from opengyre.app.recorded import Execution
from opengyre.core.reasons import Role
from opengyre.core.records import Call
from opengyre.proxy.families.base import Family
from opengyre.tree.record import ExecutionTree, Stretch, full_length, prompt_length
from opengyre.tree.select import Selection

SCHEMA_VERSION = "ATIF-v1.7"
"""1.8 only adds audio."""

UNKNOWN_VERSION = "unknown"
"""Of the agent program: ATIF wants one, and a run does not record it."""

NOTES = (
    "Recorded by OpenGyre at the model's API. Text is decoded from exact token ids, which agent steps "
    "hold with their log-probabilities; times are seconds of the run's clock. Embedded trajectories "
    "are the execution's other branches: sub-agents, compactions, forks and auxiliary calls."
)

Json = dict[str, Any]


@dataclass(frozen=True)
class Scene:
    """What all documents of an export share."""

    run: str
    model: str | None
    family: Family


def document(
    scene: Scene, execution: Execution, tree: ExecutionTree, selection: Selection
) -> Json | None:
    """None for an execution without calls."""
    tips = _tips(tree)
    if not tips:
        return None
    told: set[str] = set()
    first, *others = tips
    agent = _agent(scene, execution)
    root = _conversation(scene, tree, first, told)
    root |= {"session_id": execution.execution_id, "agent": agent, "notes": NOTES}
    root["extra"] |= _facts(scene, execution, selection)
    below = [_conversation(scene, tree, tip, told) | {"agent": agent} for tip in others]
    return root | ({"subagent_trajectories": below} if below else {})


def _tips(tree: ExecutionTree) -> list[Call]:
    """Calls that no other goes on from; the end of the main conversation first, else the last."""
    gone_on = {
        call.parent_id
        for call in tree.calls
        if call.parent_id and call.reused == full_length(tree.call(call.parent_id))
    }
    tips = [call for call in tree.calls if call.call_id not in gone_on]
    tips.sort(key=lambda call: (call.role is not Role.MAIN, -call.index))
    return tips[:1] + sorted(tips[1:], key=lambda call: call.index)


def _conversation(scene: Scene, tree: ExecutionTree, tip: Call, told: set[str]) -> Json:
    steps = _Steps(scene.family)
    for stretch in tree.path(tip.call_id):
        copied = stretch.call.call_id in told
        steps.add(stretch, copied=copied)
        if stretch.end == full_length(stretch.call):
            told.add(stretch.call.call_id)
    return {
        "schema_version": SCHEMA_VERSION,
        "trajectory_id": tip.call_id,
        "steps": steps.done,
        "final_metrics": _totals(steps.done),
        "extra": {"role": tip.role.value, "role_why": tip.role_why},
    }


@dataclass
class _Steps:
    family: Family
    done: list[Json] = field(default_factory=list)

    def add(self, stretch: Stretch, *, copied: bool) -> None:
        call = stretch.call
        written = call.suffix_ids[: stretch.end - stretch.start]
        asks = stretch.sampled > 0
        for turn in turns_of(self.family.decode(written), asks=asks) if written else []:
            self._write(turn, copied=copied)
        whole = stretch.end == full_length(call)
        if whole or asks:
            self._answer(call, stretch.sampled, copied=copied or not whole)

    def _write(self, turn: Written, *, copied: bool) -> None:
        if turn.role == "results" and self.done and self.done[-1]["source"] == "agent":
            calls = self.done[-1].get("tool_calls", [])
            ids = [call["tool_call_id"] for call in calls]
            ids += [None] * (len(turn.results) - len(ids))
            results = [
                {"content": text} | ({"source_call_id": call_id} if call_id else {})
                for call_id, text in zip(ids, turn.results, strict=False)
            ]
            self.done[-1]["observation"] = {"results": results}
            return
        if turn.role == "assistant":
            self._step("agent", turn.text, {"is_copied_context": True})
            return
        source = "system" if turn.role == "system" else "user"
        self._step(source, turn.text, {"is_copied_context": True} if copied else {})

    def _answer(self, call: Call, kept: int, *, copied: bool) -> None:
        reply = self.family.parse(call.output_ids[:kept])
        calls = [
            {
                "tool_call_id": f"{call.call_id}-{number}",
                "function_name": found.name,
                "arguments": found.arguments,
            }
            for number, found in enumerate(reply.calls)
        ]
        more: Json = {"llm_call_count": 1, "metrics": _metrics(call, kept), "extra": _extra(call)}
        if reply.thinking:
            more["reasoning_content"] = reply.thinking
        if calls:
            more["tool_calls"] = calls
        if copied:
            more["is_copied_context"] = True
        self._step("agent", reply.text, more)

    def _step(self, source: str, message: str, more: Json) -> None:
        self.done.append(
            {"step_id": len(self.done) + 1, "source": source, "message": message} | more
        )


def _metrics(call: Call, kept: int) -> Json:
    return {
        "prompt_tokens": prompt_length(call),
        "completion_tokens": kept,
        "cached_tokens": call.reused,
        "completion_token_ids": call.output_ids[:kept],
        "logprobs": call.output_logprobs[:kept],
    }


def _extra(call: Call) -> Json:
    return {
        "call_id": call.call_id,
        "role": call.role.value,
        "finish": call.finish.value,
        "fork": call.fork.value if call.fork else None,
        "started_s": call.started_at,
        "ended_s": call.ended_at,
        "versions": [[span.version, span.start, span.end] for span in call.versions],
    }


def _totals(steps: list[Json]) -> Json:
    own = [
        step["metrics"]
        for step in steps
        if "metrics" in step and not step.get("is_copied_context", False)
    ]
    return {
        "total_prompt_tokens": sum(metrics["prompt_tokens"] for metrics in own),
        "total_completion_tokens": sum(metrics["completion_tokens"] for metrics in own),
        "total_cached_tokens": sum(metrics["cached_tokens"] for metrics in own),
        "total_steps": len(steps),
    }


def _agent(scene: Scene, execution: Execution) -> Json:
    name = execution.record.harness if execution.record else "unknown"
    agent: Json = {"name": name, "version": UNKNOWN_VERSION}
    return agent | ({"model_name": scene.model} if scene.model else {})


def _facts(scene: Scene, execution: Execution, selection: Selection) -> Json:
    record, fate = execution.record, execution.fate
    facts: Json = {"run": scene.run, "execution_id": execution.execution_id}
    if record is not None:
        facts |= {
            "group_id": record.group_id,
            "task_id": record.task_id,
            "split": record.split,
            "attempt": record.attempt,
            "verdict": record.verdict.kind.value,
            "ending": record.verdict.ending.value,
            "reward": record.verdict.reward,
            "passed": record.verdict.passed,
        }
    return facts | {
        "advantage": fate.advantage,
        "why_untrained": fate.why_untrained,
        "selected_trajectories": [chosen.leaf_call_id for chosen in selection.trajectories],
    }
