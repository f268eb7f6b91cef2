# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Whoever gets `release/` learns neither a round's time nor the machine."""

import os
import pathlib
import re
import socket
import tempfile
import time
from unittest import mock
import zipfile

from absl.testing import absltest
import tensorflow as tf

from tests.program import toy
from tff_dp.program.display import plots

_NUM_ROUNDS = 10
_TIME_OF_DAY = re.compile(rb'\d\d:\d\d:\d\d')


def _events(folder: pathlib.Path) -> list[tf.compat.v1.Event]:
  return [
      tf.compat.v1.Event.FromString(record.numpy())
      for path in folder.glob('*')
      for record in tf.data.TFRecordDataset([str(path)])
  ]


class ReleaseTest(absltest.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    parent = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
    # Its compressed bytes hold any two letters, such as a short name of a host.
    cls.enterClassContext(mock.patch.object(plots, 'write_curves'))
    cls.host = 'host-of-hospital-17'
    cls.enterClassContext(
        mock.patch.object(socket, 'gethostname', lambda: cls.host)
    )
    cls.root = parent / 'run'
    process = toy.Process()
    state = process.initialize()
    cls.key = state.key
    process.initialize = lambda: state
    # Rounds that take unlike times, as they do with unlike clients.
    process.next.on_round = lambda index: time.sleep(0.15 * (index == 4))
    toy.train(
        process,
        toy.build_plan(_NUM_ROUNDS),
        toy.Clients(),
        output_dir=cls.root,
        delta=1e-5,
        evaluate_fn=toy.evaluate,
        checkpoint_every=1,
        progress='quiet',
    )
    cls.release = cls.root / 'release'

  def _files(self) -> list[pathlib.Path]:
    return [path for path in self.release.rglob('*') if path.is_file()]

  def test_tensorboard_has_rounds_for_times(self):
    events = _events(self.release / 'tensorboard')
    self.assertEqual(
        [(event.wall_time, event.step) for event in events],
        [(i, i) for i in range(_NUM_ROUNDS + 1)],
    )
    self.assertEqual(events[0].file_version, 'brain.Event:2')
    self.assertTrue(all(e.summary.value for e in events[1:]))

  def test_names_tell_nothing_of_the_machine(self):
    (path,) = (self.release / 'tensorboard').iterdir()
    self.assertEqual(path.name, 'events.out.tfevents.rounds')
    names = [self.host, socket.getfqdn(), os.uname().nodename]
    for path in self._files():
      content = path.read_bytes()
      for name in names:
        if name and name != 'localhost':
          self.assertNotIn(name, path.name)
          self.assertNotIn(name.encode(), content, path)
      self.assertNotIn(os.fsencode(self.root), content, path)

  def test_no_file_holds_a_time_of_day(self):
    texts = [p for p in self._files() if p.suffix in ('.json', '.md', '.csv', '.html')]
    self.assertGreater(len(texts), 5)
    for path in texts:
      self.assertIsNone(_TIME_OF_DAY.search(path.read_bytes()), path)
    with zipfile.ZipFile(self.release / 'model.npz') as file:
      for entry in file.infolist():
        self.assertEqual(entry.date_time, (1980, 1, 1, 0, 0, 0))

  def test_the_noise_key_is_in_the_checkpoints_alone(self):
    # As bytes, and as people and JSON write numbers.
    forms = [self.key.tobytes(), self.key.tobytes().hex().encode()]
    forms += [str(word).encode() for word in self.key.tolist()]
    holding = set()
    for path in self.root.rglob('*'):
      if path.is_file() and any(form in path.read_bytes() for form in forms):
        holding.add(path.relative_to(self.root).parts[:2])
    self.assertEqual(holding, {('secret', 'checkpoints')})

  def test_modification_times_are_of_the_end(self):
    paths = [self.release, *self.release.rglob('*')]
    self.assertGreater(len(paths), 6)
    times = {path.stat().st_mtime_ns for path in paths}
    self.assertLen(times, 1)
    # Not a made-up one, by which copies would miss a file that has changed.
    self.assertAlmostEqual(times.pop() / 1e9, time.time(), delta=600)


if __name__ == '__main__':
  absltest.main()
