"""The README of an exported folder, which is also the card that `datasets` reads."""

from collections.abc import Collection

HEAD = """---
configs:
- config_name: default
  data_files: trajectories.parquet
---
"""
"""Keeps `datasets` away from the ATIF documents beside the table."""

TABLE = """
`trajectories.parquet` has {rows:,} rows, one for each selected trajectory. `token_ids`, `mask`,
`logprobs` and `versions` are equally long; `mask` marks the tokens that the policy sampled and that
this row owns, and no token of an execution is marked twice. Train on the rows with `trained`.

```python
from datasets import load_dataset
rows = load_dataset("parquet", data_files="trajectories.parquet", split="train")
```
"""

DOCUMENTS = """
`atif/` has one conversation a file, in the Agent Trajectory Interchange Format, version 1.7.
"""


def card(run: str, formats: Collection[str], rows: int) -> str:
    """Markdown."""
    parts = [HEAD] if "parquet" in formats else []
    parts.append(f"# Trajectories of {run}\n")
    if "parquet" in formats:
        parts.append(TABLE.format(rows=rows))
    if "atif" in formats:
        parts.append(DOCUMENTS)
    return "".join(parts)
