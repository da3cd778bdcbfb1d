"""Real byte-level BPEs with the special tokens of each family, small enough to train in a test."""

import functools

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
GLM = (
    "<|endoftext|>",
    "[gMASK]",
    "<sop>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|observation|>",
)
DEEPSEEK = (
    "<｜end▁of▁sentence｜>",
    "<｜begin▁of▁sentence｜>",
    "<｜User｜>",
    "<｜Assistant｜>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁output▁begin｜>",
    "<｜tool▁output▁end｜>",
    "<｜tool▁sep｜>",
)
MARKS = (
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
)
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Qwen's own pre-tokeniser: single digits, runs of new lines."""
CORPUS = [
    'system user assistant\n{"name": "Bash", "arguments": {"command": "cat main.py"}}\n',
    "<tool_response>\nThe file was changed.\n</tool_response>\n\n\n  return x + 1\n",
]


@functools.cache
def small_tokenizer(special: tuple[str, ...] = CHATML) -> Tokenizer:
    """With these control tokens first, in order, and then what it learnt of the corpus."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in special],
    )
    tokenizer.train_from_iterator(CORPUS * 8, trainer)
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in MARKS])
    return tokenizer
