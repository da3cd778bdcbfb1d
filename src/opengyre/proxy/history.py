"""What one execution's calls were made of: finds the deepest recorded context of a new request.

Invariant: a node of the trie stands for one conversation prefix and points at the recorded tokens
that hold it; following a request's turns through the trie, the reached node's tokens are reused
word for word and only the turns after it are encoded. A node exists only once its call is durable.
Thinking is compared where the harness echoes it and taken on trust where it does not. A sampled
stop token is reused where the template goes on with that very token; else the next call branches
off before it, and the fork is counted.
"""

import itertools
from array import array
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from opengyre.core.reasons import ForkReason
from opengyre.core.tokens import TokenIds
from opengyre.proxy.families.base import Family, without_stop
from opengyre.proxy.families.pieces import PIECE
from opengyre.proxy.messages import (
    Conversation,
    Message,
    Turn,
    head_key,
    text_digest,
    turn_digest,
)
from opengyre.proxy.refusals import context_full

AFTER_COMPACTION = (
    "This session is being continued from a previous conversation",
    "Another language model started",
    "What did we do so far?",
    "Resume the prior task using the summary above",
)
"""What Claude Code, Codex, OpenCode and Qwen Code say in a history that they have just compacted."""
LONG_SUMMARY = 40
"""Characters from which a summary found in a request is no accident."""
NOTHING_SAID = turn_digest((Message("assistant"),))
"""An answer without text, thinking or calls: unless it was sampled so, it is what OpenCode leaves of a
stream that was cut, in front of the answer that it got then. It is passed over."""
REPLY = -1
"""Place of a node that ends with its call's answer; the root has it too, and no call."""

Key = bytes
T = TypeVar("T")


@dataclass(eq=False, slots=True)
class Node:
    """A conversation prefix: call_id's tokens up to length hold it."""

    call_id: str | None
    length: int
    thinking: str = ""
    reply: bool = False
    """It ends with an answer as it was sampled."""
    stopped: bool = True
    """That answer ends with a stop token."""
    faithful: bool = True
    """That answer's tokens mean what the harness was told."""
    place: int = REPLY
    """Which turn of its call's prompt it ends with, or REPLY: with call_id, the node's name."""
    extended: bool = False
    """A recorded call went on from here."""
    in_flight: int = 0
    """Requests that went on from here and have no answer yet."""
    children: dict[Key, list["Node"]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a call added: the prompt after the reused part, and its answer."""

    parent_id: str | None
    reused: int
    suffix: "array[int]"
    output: "array[int]"


@dataclass(frozen=True, slots=True)
class Sampled:
    """An answer with tool calls, found again by the id of the first one."""

    key: Key
    thinking: str
    output: "array[int]"


@dataclass(frozen=True, slots=True)
class Step:
    """A turn that the call adds to the trie once it is recorded."""

    key: Key
    thinking: str
    length: int


@dataclass(frozen=True, slots=True)
class Plan:
    """How a request's prompt is made."""

    parent_id: str | None
    reused: int
    suffix_ids: list[int]
    prompt_ids: TokenIds
    fork: ForkReason | None
    node: Node
    steps: list[Step]


@dataclass(frozen=True, slots=True)
class Ahead:
    """What a request's new part is as tokens, if node and known are still what a walk finds."""

    asked: Conversation
    read: Conversation
    """asked, or all of it where its past was not enough."""
    node: Node
    known: int
    ids: list[int]
    steps: list[Step]


class UnreadError(Exception):
    """Too little of a conversation was read to plan for it: look ahead first."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a prompt before it is encoded."""

    before: str
    own: str | list[int]
    """Text, or tokens as they were sampled."""
    after: str
    step: Step | None
    """The turn that it ends, whose length is not known yet."""
    answer: bool = False
    """A stop token at the end of own belongs to after."""

    @property
    def characters(self) -> int:
        """To encode."""
        return len(self.before) + len(self.own if isinstance(self.own, str) else "")


class History:
    """The trie of one execution."""

    def __init__(self, family: Family) -> None:
        self._family = family
        self._root = Node(None, 0)
        self._tokens: dict[str, Tokens] = {}
        self._sampled: dict[str, Sampled] = {}
        self._summaries: list[str] = []
        self._in_flight = 0
        self._ahead: dict[int, Ahead] = {}

    @property
    def root(self) -> Node:
        """The empty conversation."""
        return self._root

    def plan(
        self,
        conversation: Conversation,
        *,
        summary: bool = False,
        fresh: bool = False,
        may_read: bool = True,
    ) -> Plan:
        """How to prompt for the next answer. summary: the request asks for a compaction.

        fresh: it is a sub-agent's first one, whatever its opening shares with others. may_read: a past
        that is not enough is read whole, which takes long; else that raises UnreadError.
        """
        ahead = self._ahead.pop(id(conversation), None)
        if ahead is not None:
            conversation = ahead.read
        turns, past = conversation.turns(), conversation.past
        node, known, unfaithful = self._walk(conversation, turns)
        unread = len(past.keys) if past else 0
        if past and known <= unread:  # it parts before what was read, or right there
            if not may_read:
                raise UnreadError
            return self.plan(past.whole(), summary=summary, fresh=fresh)
        new = turns[max(known - unread, 0) :]
        if ahead is None or (ahead.node, ahead.known) != (node, known):
            ids, steps = _last(self._encoding(conversation, node, turns, known - unread))
        else:
            ids, steps = ahead.ids, ahead.steps
        stop = self._stop(node)
        reused = node.length - len(stop) + (len(stop) if ids[: len(stop)] == stop else 0)
        suffix = ids[reused - node.length + len(stop) :]
        off_template = unfaithful or reused < node.length
        fork = self._fork(node, known, new, summary=summary, unfaithful=off_template)
        if fresh and fork is ForkReason.HISTORY_EDITED:
            fork = ForkReason.NEW_CONVERSATION
        prompt = self.full_ids(node.call_id, reused)
        prompt.extend(suffix)
        return Plan(
            parent_id=node.call_id,
            reused=reused,
            suffix_ids=suffix,
            prompt_ids=prompt,
            fork=fork,
            node=node,
            steps=steps,
        )

    def looking_ahead(
        self, conversation: Conversation, context: int | None
    ) -> Generator[bool, None, None]:
        """Encode in whatever thread what plan will need in the event loop (see forget), a piece at a time;
        yields whether the next one will take long.

        Raises Refusal once the prompt cannot fit a context.
        """
        read = conversation
        node, known, _ = self._walk(read, read.turns())
        if read.past and known <= len(read.past.keys):
            read = read.past.whole()
            node, known, _ = self._walk(read, read.turns())
        unread = len(read.past.keys) if read.past else 0
        ids, steps = yield from self._encoding(read, node, read.turns(), known - unread, context)
        self._ahead[id(conversation)] = Ahead(conversation, read, node, known, ids, steps)

    def forget(self, conversation: Conversation) -> None:
        """Drop what was looked ahead for and nobody used."""
        self._ahead.pop(id(conversation), None)

    def begin(self, plan: Plan) -> None:
        """The plan's request is being answered."""
        self._in_flight += 1
        plan.node.in_flight += 1

    def end(self, plan: Plan) -> None:
        """It is not any more, answered or not."""
        self._in_flight -= 1
        plan.node.in_flight -= 1

    def keep(self, plan: Plan, call_id: str, output_ids: Sequence[int]) -> Node:
        """The call is durable: its prompt can be reused. Returns the node of its prompt."""
        self._tokens[call_id] = Tokens(
            plan.parent_id, plan.reused, array("i", plan.suffix_ids), array("i", output_ids)
        )
        node = plan.node
        node.extended = True
        for place, step in enumerate(plan.steps):
            found = _compatible(node.children.get(step.key, []), step.thinking, exact=True)
            if not found:
                found = [Node(call_id, step.length, step.thinking, place=place)]
                node.children.setdefault(step.key, []).append(found[0])
            node = found[-1]
        return node

    def keep_reply(
        self, prompt: Node, call_id: str, message: Message, *, stopped: bool, faithful: bool
    ) -> Node:
        """Its answer went out as this message: later requests will hold it. Returns its node."""
        tokens = self._tokens[call_id]
        length = tokens.reused + len(tokens.suffix) + len(tokens.output)
        key = turn_digest((message,))
        node = Node(
            call_id, length, message.thinking, reply=True, stopped=stopped, faithful=faithful
        )
        prompt.children.setdefault(key, []).append(node)
        if message.calls and faithful:
            self._sampled[message.calls[0].call_id] = Sampled(key, message.thinking, tokens.output)
        return node

    def keep_summary(self, text: str) -> None:
        """A compaction was answered with this text; a request that holds it follows from it."""
        self._summaries.append(text.strip())

    def full_ids(self, call_id: str | None, length: int) -> TokenIds:
        """The first length tokens of a recorded call's prompt and answer."""
        pieces: list[array[int]] = []
        while call_id is not None and length > 0:
            tokens = self._tokens[call_id]
            own = length - tokens.reused
            if own > 0:
                pieces.append(_first(tokens.output, own - len(tokens.suffix)))
                pieces.append(_first(tokens.suffix, own))
                length = tokens.reused
            call_id = tokens.parent_id
        return TokenIds.joined(reversed(pieces))

    def _walk(self, conversation: Conversation, turns: list[Turn]) -> tuple[Node, int, bool]:
        """(deepest node, turns it holds or -1 without even the head, stopped by unfaithfulness)."""
        key = text_digest(head_key(conversation.system, conversation.tools))
        reached = self._root.children.get(key, [])
        if not reached:
            return self._root, -1, False
        past: Sequence[tuple[Key, str]] = conversation.past.keys if conversation.past else ()
        new = ((turn_digest(turn), turn[0].thinking) for turn in turns)
        for known, (key, thinking) in enumerate(itertools.chain(past, new)):
            below = _below(reached, key)
            if len(below) == 1 and _goes_on(below[0], thinking):
                reached = below  # nearly every turn of a long history
                continue
            found = _compatible(below, thinking)
            usable = [node for node in found if node.faithful]
            if not found and key == NOTHING_SAID:
                continue
            if not usable:
                return reached[-1], known, bool(found)
            reached = usable
        return reached[-1], len(past) + len(turns), False

    def _stop(self, node: Node) -> list[int]:
        """The stop token that this node ends with, if it does."""
        if not node.reply or not node.stopped:
            return []
        assert node.call_id is not None
        return self._tokens[node.call_id].output[-1:].tolist()

    def _encoding(
        self,
        conversation: Conversation,
        node: Node,
        turns: list[Turn],
        known: int,
        context: int | None = None,
    ) -> Generator[bool, None, tuple[list[int], list[Step]]]:
        """(tokens after the node's own, its stop token not among them; the turns they hold).

        Yields after each piece of work whether the next one will take long. Raises Refusal once a
        context is given that is too short.
        """
        family = self._family
        start = node.length - len(self._stop(node))
        chunks = list(self._chunks(conversation, turns, known))
        ids = family.encode(family.turn_end) if node.reply else []
        _check_fits(start + len(ids) + sum(map(self._fewest, chunks)), context)
        steps, unpaused = [], 0
        for chunk in chunks:
            unpaused += chunk.characters
            ids += family.encode(chunk.before)
            begun = len(ids)
            for piece in family.pieces(chunk.own) if isinstance(chunk.own, str) else [chunk.own]:
                ids += piece
                _check_fits(start + len(ids), context)
                if unpaused >= PIECE or not piece:
                    unpaused = max(0, unpaused - PIECE)
                    yield not piece
            if chunk.answer:
                ids[begun:] = without_stop(family, ids[begun:])
            ids += family.encode(chunk.after)
            if chunk.step is not None:
                steps.append(replace(chunk.step, length=start + len(ids)))
        return ids, steps

    def _chunks(self, conversation: Conversation, turns: list[Turn], known: int) -> Iterator[Chunk]:
        family = self._family
        if known < 0:
            key = text_digest(head_key(conversation.system, conversation.tools))
            head = family.head(conversation.system, conversation.tools)
            yield Chunk("", head, "", Step(key, "", 0))
        for place in range(max(known, 0), len(turns)):
            turn = turns[place]
            step = Step(turn_digest(turn), turn[0].thinking, 0)
            before = turns[place - 1] if place else None
            if turn[0].role != "assistant":
                yield Chunk("", family.render(turn), "", step)
                continue
            sampled = self._as_sampled(turn, step.key)
            own = family.body(turn, conversation.tools) if sampled is None else sampled
            yield Chunk(family.opening(before), own, family.turn_end, step, answer=True)
        yield Chunk("", family.opening(turns[-1] if turns else None), "", None)

    def _fewest(self, chunk: Chunk) -> int:
        """Tokens that it has at least; a stop token may be left out."""
        if isinstance(chunk.own, str):
            return max(0, self._family.fewest(chunk.own) - 1)
        return max(0, len(chunk.own) - 1)

    def _as_sampled(self, turn: Turn, key: Key) -> list[int] | None:
        """The tokens of a turn that is this very answer; None where the template writes it."""
        calls = turn[0].calls
        sampled = self._sampled.get(calls[0].call_id) if calls else None
        same = sampled is not None and sampled.key == key
        if sampled is None or not same or turn[0].thinking not in {"", sampled.thinking}:
            return None
        return sampled.output.tolist()

    def _fork(
        self, node: Node, known: int, new: list[Turn], *, summary: bool, unfaithful: bool
    ) -> ForkReason | None:
        first = not self._tokens and not self._in_flight
        goes_on = node.reply and not node.extended and not node.in_flight
        if first or (goes_on and not unfaithful):
            return None
        if summary or self._follows_summary(new):
            return ForkReason.COMPACTION
        if unfaithful:
            return ForkReason.RENDER_MISMATCH
        if known <= 0:
            return ForkReason.NEW_CONVERSATION
        if not new or (node.reply and node.in_flight):
            return ForkReason.SIBLING
        return ForkReason.HISTORY_EDITED

    def _follows_summary(self, new: list[Turn]) -> bool:
        told = "\n".join(message.text for turn in new for message in turn if message.role != "tool")
        known = [text for text in self._summaries if len(text) >= LONG_SUMMARY]
        return any(mark in told for mark in (*AFTER_COMPACTION, *known))


def _check_fits(tokens: int, context: int | None) -> None:
    if context is not None and tokens >= context:
        raise context_full(tokens, context, at_least=True)


def _last(work: Generator[bool, None, T]) -> T:
    """What comes of it, without a pause."""
    while True:
        try:
            next(work)
        except StopIteration as ended:
            result: T = ended.value
            return result


def _first(ids: "array[int]", count: int) -> "array[int]":
    """At most so many; the very array where that is all of it."""
    return ids if count >= len(ids) else ids[: max(0, count)]


def _goes_on(node: Node, thinking: str) -> bool:
    return node.faithful and (not thinking or thinking == node.thinking)


def _below(reached: list[Node], key: Key) -> list[Node]:
    if len(reached) == 1:
        return reached[0].children.get(key, [])
    return [child for node in reached for child in node.children.get(key, [])]


def _compatible(nodes: list[Node], thinking: str, *, exact: bool = False) -> list[Node]:
    """Those whose thinking is the echoed one; any, when none was echoed."""
    if exact:
        return [node for node in nodes if node.thinking == thinking and not node.reply]
    return [node for node in nodes if thinking in {"", node.thinking}]
