"""A byte-level BPE vocabulary of some hundred tokens, trained on the demonstrations."""

from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split
from tokenizers.trainers import BpeTrainer

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
"""Control tokens of Qwen3's markup."""

MARKUP = (
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
)
"""Markup that is one token in Qwen3 too."""

SIZE = 650
"""Tokens: the words of the bundled families as whole tokens, and all bytes."""

PIECES = Regex(r" ?[A-Za-z_]+|\d| ?[^\sA-Za-z_\d]+|\s+")
"""Words, single digits, runs of signs, white space."""


def train_vocabulary(texts: Iterable[str], folder: Path) -> Tokenizer:
    """Train on the texts and write folder/tokenizer.json."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = Sequence(
        [Split(PIECES, "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=SIZE,
        special_tokens=[
            *(AddedToken(text, special=True, normalized=False) for text in SPECIAL),
            *(AddedToken(text, special=False, normalized=False) for text in MARKUP),
        ],
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", '
        '"pad_token": "<|endoftext|>"}\n'
    )
    return tokenizer
