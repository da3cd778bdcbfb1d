"""Shared tensors: whole writes or an error, never a mixture."""

import struct
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from opengyre.core.errors import TransferError
from opengyre.transfer.manifest import TensorSpec, checksum, manifest_of, offsets
from opengyre.transfer.shared import STATE, STATE_AT, SharedTensors, share


def some(value: float = 0.0) -> dict[str, torch.Tensor]:
    return {
        "w": torch.arange(6.0).reshape(2, 3) + value,
        "half": torch.full((5,), float(value), dtype=torch.bfloat16),
        "scalar": torch.tensor(float(value)),
        "empty": torch.zeros(0, 3),
        "ids": torch.tensor([1, 2, 2**40]),
    }


def blank() -> dict[str, torch.Tensor]:
    return {name: torch.zeros_like(t) for name, t in some().items()}


@pytest.fixture
def pair(tmp_path):
    writer = share(tmp_path, "weights", some().items())
    reader = SharedTensors.open(tmp_path, "weights")
    yield writer, reader
    reader.close()
    writer.close()


def test_a_reader_gets_the_last_write_with_its_version(pair):
    writer, reader = pair
    for version in (1, 2):
        crc = writer.write(version, some(version))
        into = blank()
        assert reader.read(into) == version == reader.version
        assert all(torch.equal(into[n], t) for n, t in some(version).items())
        assert crc == checksum(into.items()) == reader.snapshot().checksum


def test_nothing_can_be_read_before_the_first_write(pair):
    with pytest.raises(TransferError, match="never written"):
        pair[1].read(blank())


def test_a_half_write_is_never_exposed_and_the_next_write_heals_it(pair):
    writer, reader = pair
    writer.write(1, some(1))
    sequence, *rest = STATE.unpack_from(writer._memory, STATE_AT)
    STATE.pack_into(writer._memory, STATE_AT, sequence + 1, *rest)  # the writer dies in its write
    into = blank()
    with pytest.raises(TransferError, match="being written"):
        reader.read(into)
    assert all(torch.equal(into[n], t) for n, t in blank().items())
    writer.write(3, some(3))
    assert reader.read(into) == 3


def test_tensors_that_do_not_fit_leave_the_last_write_readable(pair):
    writer, reader = pair
    writer.write(1, some(1))
    for odd in ({"ids": torch.zeros(4)}, {"new": torch.zeros(1)}):
        with pytest.raises(TransferError, match=next(iter(odd))):
            writer.write(2, some(2) | odd)
    assert reader.read(blank()) == 1


def test_a_write_between_copy_and_check_is_noticed(pair, monkeypatch):
    writer, reader = pair
    writer.write(1, some(1))
    payload = reader._payload

    def slow():
        data = payload()
        writer.write(2, some(2))
        return data

    monkeypatch.setattr(reader, "_payload", slow)
    with pytest.raises(TransferError, match="written while"):
        reader.snapshot()


def test_a_flipped_byte_fails_the_checksum(pair):
    writer, reader = pair
    writer.write(1, some(1))
    writer._payload()[3] ^= 1
    into = blank()
    with pytest.raises(TransferError, match="checksum"):
        reader.read(into)
    assert not into["w"].any()


def test_another_version_than_asked_for_is_refused(pair):
    writer, reader = pair
    writer.write(4, some())
    with pytest.raises(TransferError, match="wanted version 5"):
        reader.read(blank(), version=5)
    assert reader.read(blank(), version=4) == 4


def test_tensors_of_another_shape_are_refused(pair):
    writer, reader = pair
    writer.write(1, some())
    with pytest.raises(TransferError, match="other ones"):
        reader.read(blank() | {"w": torch.zeros(3, 2)})


def test_reading_may_change_the_dtype(tmp_path):
    writer = share(tmp_path, "w", [("x", torch.zeros(3))])
    writer.write(1, {"x": torch.tensor([1.0, 2.0, 3.0])})
    into = {"x": torch.zeros(3, dtype=torch.bfloat16)}
    writer.read(into)
    assert into["x"].tolist() == [1.0, 2.0, 3.0]
    writer.close()


def test_the_owner_removes_the_file_and_a_reader_does_not(tmp_path):
    writer = share(tmp_path, "w", some().items())
    reader = SharedTensors.open(tmp_path, "w", writable=True)
    reader.write(7, some())
    reader.close()
    assert writer.version == 7
    writer.close()
    assert not list(tmp_path.iterdir())
    with pytest.raises(TransferError, match="wanted shared tensors"):
        SharedTensors.open(tmp_path, "w")


@pytest.mark.parametrize("name", ["", "../w", "a/b", ".hidden", "x" * 65, "Weights"])
def test_names_cannot_leave_the_folder(tmp_path, name):
    with pytest.raises(TransferError, match="wanted a name"):
        SharedTensors.open(tmp_path, name)


def test_foreign_and_cut_files_are_refused(tmp_path):
    (tmp_path / "a").write_bytes(b"short")
    (tmp_path / "b").write_bytes(b"x" * 500)
    writer = share(tmp_path, "c", some().items())
    data = writer.path.read_bytes()
    (tmp_path / "d").write_bytes(data[:-64])
    for name in "abd":
        with pytest.raises(TransferError):
            SharedTensors.open(tmp_path, name)
    writer.close()


def test_a_full_memory_is_an_error_at_creation():
    huge = [TensorSpec("w", [2**50], "float32")]
    with pytest.raises(TransferError, match="free some"):
        SharedTensors.create(Path("/dev/shm"), "opengyre-test-huge", huge)
    assert not list(Path("/dev/shm").glob("opengyre-test-huge*"))


shapes = st.lists(st.lists(st.integers(0, 4), max_size=3), min_size=1, max_size=5)
dtypes = st.sampled_from([torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.uint8])


@settings(max_examples=25, deadline=None)
@given(shapes, st.data())
def test_any_manifest_round_trips(tmp_path_factory, shapes, data):
    generator = torch.Generator().manual_seed(len(shapes))
    tensors = {
        f"t{i}": (torch.rand(shape, generator=generator) * 100).to(data.draw(dtypes))
        for i, shape in enumerate(shapes)
    }
    shared = share(tmp_path_factory.mktemp("s"), "t", tensors.items())
    shared.write(0, tensors)
    found = shared.snapshot().tensors
    assert list(found) == list(tensors)
    assert all(torch.equal(found[n], t) and found[n].dtype == t.dtype for n, t in tensors.items())
    starts, size = offsets(manifest_of(tensors.items()))
    assert starts == sorted(starts)
    assert all(start % 8 == 0 for start in [*starts, size])
    shared.close()


def test_the_sequence_is_even_only_between_writes(pair):
    writer, _ = pair
    assert STATE_AT + STATE.size <= struct.calcsize("<8sQqIIQ")
    for version in range(3):
        writer.write(version, some())
        assert STATE.unpack_from(writer._memory, STATE_AT)[0] == 2 * (version + 1)
