"""Model servers elsewhere: SGLang and vLLM over HTTP, token ids in and token ids out."""
