# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of checkpoints: exact round trips, and errors instead of guesses."""

import collections
import os
import pathlib
import tempfile

from absl.testing import absltest
from absl.testing import parameterized
import attrs
import numpy as np

from tff_dp import _checks
from tff_dp.program.files import checkpoints


@attrs.define
class _Weights:
  trainable: list
  non_trainable: list


def _state() -> object:
  return collections.OrderedDict(
      weights=_Weights([np.arange(6, dtype=np.float32).reshape(2, 3)], []),
      odd=(
          np.array([np.nan, np.inf, -0.0, 1e-42], np.float32),
          np.array([2**63 - 1, -(2**63)], np.int64),
          np.bool_(True),
          np.zeros((0, 3), np.float16),
          np.complex64(1 + 2j),
          3,
          b'\0bytes\0',
          'text',
      ),
      empty=(),
  )


class PackTest(parameterized.TestCase):

  def test_round_trip_is_exact(self):
    state = _state()
    like = _state()
    like['weights'].trainable[0] += 1
    again = checkpoints.unpack(checkpoints.pack(state), like=like)
    self.assertIsInstance(again['weights'], _Weights)
    np.testing.assert_array_equal(
        again['weights'].trainable[0], state['weights'].trainable[0]
    )
    for found, expected in zip(again['odd'][:5], state['odd'][:5]):
      self.assertEqual(found.dtype, expected.dtype)
      self.assertEqual(found.shape, expected.shape)
      self.assertEqual(found.tobytes(), expected.tobytes())
    self.assertEqual(again['odd'][5:], state['odd'][5:])
    self.assertEqual(checkpoints.pack(again), checkpoints.pack(state))
    again['weights'].trainable[0] += 1  # Can be written to.

  @parameterized.parameters(
      ([np.zeros(3, np.float32)],),
      ([np.zeros(2, np.float64)],),
      ([np.zeros(2, np.float32), np.zeros(1, np.float32)],),
  )
  def test_another_structure_is_an_error(self, like):
    data = checkpoints.pack([np.zeros(2, np.float32)])
    with self.assertRaises(ValueError):
      checkpoints.unpack(data, like=like)

  def test_objects_are_an_error(self):
    with self.assertRaises(TypeError):
      checkpoints.pack([np.array([None])])
    with self.assertRaises(TypeError):
      checkpoints.pack([np.array(['text'])])


class CheckpointStoreTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.root = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
    self.store = checkpoints.CheckpointStore(self.root)

  def _save(self, round_index: int) -> checkpoints.Checkpoint:
    checkpoint = checkpoints.Checkpoint(
        round_index=round_index,
        process_state=_state(),
        noise={'kind': 'full', 'draws': None},
        ledger=b'\0ledger\0\xff',
        history={'rows': round_index, 'bytes': 7, 'crc32': 2**32 - 1},
    )
    self.store.save(checkpoint)
    return checkpoint

  def test_nothing_saved(self):
    self.assertIsNone(self.store.latest_round())

  def test_round_trip(self):
    saved = self._save(7)
    self.assertEqual(self.store.latest_round(), 7)
    loaded = self.store.load(7, like=_state())
    self.assertEqual(loaded.round_index, 7)
    self.assertEqual(loaded.noise, saved.noise)
    self.assertEqual(loaded.ledger, saved.ledger)
    self.assertEqual(loaded.history, saved.history)
    self.assertEqual(
        checkpoints.pack(loaded.process_state),
        checkpoints.pack(saved.process_state),
    )

  def test_two_are_kept(self):
    for round_index in (0, 3, 10):
      self._save(round_index)
    self.assertCountEqual(os.listdir(self.root), ['round_3', 'round_10'])
    self.assertEqual(self.store.latest_round(), 10)

  def test_temporary_file_is_no_checkpoint(self):
    self._save(3)
    (self.root / 'round_9.tff_dp_tmp').write_bytes(b'')
    self.assertEqual(self.store.latest_round(), 3)

  @parameterized.parameters(0, 3, 4, 20, 200, -1)
  def test_damaged(self, place):
    self._save(3)
    path = self.root / 'round_3'
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'has changed'):
      self.store.load(3, like=_state())

  def test_cut_off(self):
    self._save(3)
    path = self.root / 'round_3'
    path.write_bytes(path.read_bytes()[:-10])
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'round_3'):
      self.store.load(3, like=_state())

  def test_saving_a_round_twice_is_an_error(self):
    self._save(3)
    with self.assertRaises(Exception):
      self._save(3)


if __name__ == '__main__':
  absltest.main()
