"""Make the quickstart's policy: demonstrate, train a vocabulary, imitate, save."""

from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from opengyre.app.warmstart.traces import demonstrations
from opengyre.app.warmstart.vocabulary import SIZE, train_vocabulary
from opengyre.learner.imitate import Example, ImitationProgress, ImitationSettings, imitate
from opengyre.learner.policy import new_policy
from opengyre.model.folder import save_model
from opengyre.proxy.families.base import encode_conversation, render_conversation
from opengyre.proxy.families.qwen3 import Qwen3Family
from opengyre.proxy.messages import Conversation
from opengyre.tasks.bundled import Skill

FAMILIES = ["repair"]
"""What the quickstart trains on."""

SHAPE: dict[str, object] = {
    "hidden_size": 96,
    "intermediate_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 24,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
}
"""0.37 million parameters: the smallest that copied names well."""


def make_policy(
    out: Path,
    *,
    seed: int,
    traces: int,
    epochs: int,
    console: Console,
    skill: Skill = Skill(),  # noqa: B008 — frozen
) -> None:
    """Write a transformers folder at `out`."""
    with Progress(console=console, transient=not console.is_terminal) as progress:
        task = progress.add_task("demonstrations", total=traces)
        conversations = []
        for conversation in demonstrations(FAMILIES, traces, seed, skill):
            conversations.append(conversation)
            progress.advance(task)
        family = _family(conversations, out)
        model = new_policy(SHAPE | _tokens(family), seed, out)
        task = progress.add_task("imitation", total=None)

        def show(done: ImitationProgress) -> None:
            words = f"imitation, loss {done.loss:.3f}"
            progress.update(task, total=done.steps, completed=done.step, description=words)

        examples = [example(family, conversation) for conversation in conversations]
        imitate(model, examples, ImitationSettings(epochs=epochs, seed=seed), show)
    save_model(model, out, out)
    parameters = sum(weight.numel() for _, weight in model.named_weights())
    console.print(f"{parameters:,} parameters, {len(examples)} demonstrations, written to {out}")


def _family(conversations: list[Conversation], out: Path) -> Qwen3Family:
    """Render with an untrained vocabulary first: rendering needs no tokens, training needs texts."""
    plain = Qwen3Family(train_vocabulary([""], out), "signature")
    texts = (render_conversation(plain, conversation) for conversation in conversations)
    return Qwen3Family(train_vocabulary(texts, out), "signature")


def _tokens(family: Qwen3Family) -> dict[str, object]:
    (pad,) = family.encode("<|endoftext|>")
    return {"vocab_size": SIZE, "eos_token_id": family.stop_ids[0], "pad_token_id": pad}


def example(family: Qwen3Family, conversation: Conversation) -> Example:
    """Token ids, and which of them the policy is to say."""
    encoded = encode_conversation(family, conversation)
    actions = [False] * len(encoded.ids)
    for start, end in encoded.sampled:
        actions[start:end] = [True] * (end - start)
    return encoded.ids, actions
