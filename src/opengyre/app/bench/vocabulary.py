"""A tokenizer for the proxy bench where no model's own is at hand."""

from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from opengyre.app.bench.talk import corpus

SIZE = 16_000
"""Tokens: enough that source code takes about as many as with a model's own."""
CHARS = 1_500_000
"""Of source code to learn from: some seconds' work."""
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def write_tokenizer(file: Path) -> Path:
    """A byte-level BPE with Qwen's special tokens, made from the standard library's source."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIAL],
    )
    tokenizer.train_from_iterator(corpus(CHARS).splitlines(keepends=True), trainer)
    tokenizer.save(str(file))
    return file
