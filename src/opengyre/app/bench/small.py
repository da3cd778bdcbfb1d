"""Sizes of the small models that benches make. Invariant: all are Qwen3s of one shape, wider or deeper."""

HEAD = 32
"""Numbers of a head."""


def small_qwen3(hidden: int, layers: int, positions: int, words: int) -> dict[str, object]:
    """A config of `words` token ids (names as in transformers' Qwen3Config); two heads share keys."""
    return {
        "hidden_size": hidden,
        "intermediate_size": 3 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": max(2, hidden // HEAD),
        "num_key_value_heads": max(1, hidden // (2 * HEAD)),
        "head_dim": HEAD,
        "max_position_embeddings": positions,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "vocab_size": words,
    }
