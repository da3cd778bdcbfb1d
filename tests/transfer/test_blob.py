"""Blobs: whole or an error."""

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from opengyre.core.errors import TransferError
from opengyre.transfer.blob import read_blob, write_blob


class Head(msgspec.Struct):
    version: int
    token_ids: list[int]


TENSORS = {"k": torch.arange(12.0).reshape(3, 4), "h": torch.ones(3, dtype=torch.bfloat16)}


def test_a_blob_round_trips(tmp_path):
    path = tmp_path / "kv"
    write_blob(path, Head(3, [5, 6]), TENSORS)
    head, tensors = read_blob(path, Head)
    assert head == Head(3, [5, 6])
    assert all(torch.equal(tensors[n], t) for n, t in TENSORS.items())
    assert [p.name for p in tmp_path.iterdir()] == ["kv"]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_damage_is_noticed(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("b") / "kv"
    write_blob(path, Head(3, [5, 6]), TENSORS)
    whole = path.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    flipped = bytearray(whole)
    flipped[at] ^= data.draw(st.integers(1, 255))
    for damaged in (bytes(flipped), whole[:at], whole + b"x"):
        path.write_bytes(damaged)
        with pytest.raises(TransferError):
            read_blob(path, Head)


def test_an_absent_blob_and_another_header_are_transfer_errors(tmp_path):
    with pytest.raises(TransferError, match="wanted a blob"):
        read_blob(tmp_path / "no", Head)
    write_blob(tmp_path / "x", {"other": 1}, {})
    with pytest.raises(TransferError, match="wanted a Head"):
        read_blob(tmp_path / "x", Head)


def test_a_failed_write_leaves_nothing(tmp_path):
    (tmp_path / "kv").mkdir()
    with pytest.raises(TransferError, match="wanted to write"):
        write_blob(tmp_path / "kv", Head(1, []), TENSORS)
    assert [p.name for p in tmp_path.iterdir()] == ["kv"]
