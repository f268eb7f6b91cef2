# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""An older copy of secret/ beside the documents of a run is refused."""

import itertools
import json
import pathlib
import tempfile
import types

from absl.testing import absltest
from absl.testing import parameterized

from tff_dp import _checks
from tff_dp.files import rollback

_PLANNED = 9


class RollbackTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self._release = pathlib.Path(
        self.enterContext(tempfile.TemporaryDirectory())
    )

  def _write(self, *, stated=None, counted=None, metrics=None):
    """Writes the documents that are not `None`."""
    if stated is not None:
      rounds = {'rounds_done': stated, 'rounds_planned': _PLANNED}
      self._file('privacy_statement.json', {'points': {'mechanism': rounds}})
    if counted is not None:
      self._file('events.json', {'events': [{'rounds': counted}]})
    if metrics is not None:
      (self._release / 'metrics.csv').write_text(metrics)

  def _file(self, name, content):
    (self._release / name).write_text(json.dumps(content))

  def _check(self, begun):
    rollback.check(
        types.SimpleNamespace(release=self._release),
        types.SimpleNamespace(rounds_begun=begun),
    )

  def test_no_document_states_more_rounds_than_have_begun(self):
    for numbers in itertools.product((0, 1, 3), repeat=3):
      stated, counted, last = numbers
      self._write(
          stated=stated,
          # Before round 1 the events are those of the whole plan.
          counted=counted or _PLANNED,
          metrics=''.join(f'{r},0.5\n' for r in ('round', *range(1, last + 1))),
      )
      for begun in range(max(numbers)):
        with self.assertRaisesRegex(
            _checks.PrivacyRefusedError, f'states {max(numbers)} rounds'
        ):
          self._check(begun)
      for begun in (max(numbers), max(numbers) + 1):
        self._check(begun)

  def test_one_document_is_enough(self):
    for each in (
        dict(stated=2), dict(counted=2), dict(metrics='round\n1,\n2,\n')
    ):
      for path in self._release.iterdir():
        path.unlink()
      self._write(**each)
      with self.assertRaisesRegex(
          _checks.PrivacyRefusedError,
          'states 2 rounds' if 'metrics' not in each else 'no privacy statement',
      ):
        self._check(1)

  def test_run_that_has_begun_has_a_document(self):
    self._check(0)
    self._write(metrics='round\n1,\n')
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'states 1 rounds'):
      self._check(0)
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'no privacy statement, but 1 rounds'
    ):
      self._check(1)

  def test_only_whole_lines_of_metrics_count(self):
    text = 'round,loss\r\n2,0.5\r\n1,0.5\r\n\r\nx7,1\r\n8 9,1\r\n-9,1\r\n6,0'
    self._write(stated=0, metrics=text)
    self.assertEqual(rollback.rounds_released(self._release), 2)

  @parameterized.parameters(
      dict(stated='2'),
      dict(stated=True),
      dict(stated=2.0),
      dict(stated=[]),
      dict(counted='2'),
      dict(counted=True),
      dict(counted=None, events={}),
      dict(counted=None, events={'events': []}),
      dict(counted=None, events={'events': [{'rounds': 1}] * 2}),
      dict(counted=None, events={'events': [{}]}),
      dict(counted=None, events=[]),
      dict(counted=None, statement={'points': {}}),
      dict(counted=None, statement={'points': {'mechanism': {}}}),
  )
  def test_damaged_document_is_refused(
      self, events=None, statement=None, **rounds
  ):
    self._write(**rounds)
    if events is not None:
      self._file('events.json', events)
    if statement is not None:
      self._file('privacy_statement.json', statement)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'is damaged'):
      self._check(5)


if __name__ == '__main__':
  absltest.main()
