# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The report of a run shows what is in `release/`, and nothing else."""

import csv
import pathlib
import re
import shutil
import tempfile

from absl.testing import absltest

from tests.program import toy
from tff_dp.files import run_directory
from tff_dp.program.display import documents
from tff_dp.statement import declarations

_CANARY = 'canary-of-ward-7'
_EVALUATED = ['test_accuracy']
# More than the sum of three clients ever is by chance in a page.
_DATA = 918_273.0


class _Clients:
  """Clients whose ids and data are canaries."""

  client_ids = [f'{_CANARY}-{i}' for i in range(12)]

  def create_tf_dataset_for_client(self, client_id: str) -> float:
    return _DATA + int(client_id.rpartition('-')[2])


def _run(root: pathlib.Path, total_rounds: int = 10, **arguments):
  return toy.train(
      toy.Process(),
      toy.build_plan(),
      _Clients(),
      output_dir=root,
      total_rounds=total_rounds,
      **dict(
          delta=1e-5,
          epsilon_budget=100.0,
          evaluate_fn=toy.evaluate,
          rounds_per_eval=4,
          declarations=declarations.Declarations(
              model_name='ward model',
              data_name='notes <of> 2025',
              responsible='Dr. R. Example',
          ),
          progress='quiet',
      )
      | arguments,
  )


class ReportTest(absltest.TestCase):
  """The report of one run."""

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.parent = pathlib.Path(
        cls.enterClassContext(tempfile.TemporaryDirectory())
    )
    cls.root = cls.parent / 'run'
    cls.result = _run(cls.root)
    cls.page = (cls.root / 'release' / run_directory.REPORT).read_text()

  def test_report_of_a_run(self):
    for text in (
        'Privacy report: ward model',
        'notes &lt;of&gt; 2025',
        'Dr. R. Example',
        '10 of 10 planned are done',
        'Accuracy over rounds',
        'Budget spent over rounds',
        'Signal against noise',
        'tff-dp account --events release/events.json',
    ):
      self.assertIn(text, self.page)
    shown = self.result._repr_html_()
    self.assertIn('Budget spent over rounds', shown)
    self.assertIn('written to', shown)
    self.assertNotIn('<html', shown)

  def test_made_from_the_folder_release_alone(self):
    copied = self.parent / 'copied'
    shutil.copytree(self.root / 'release', copied)
    (copied / run_directory.REPORT).unlink()
    elsewhere = self.root.rename(self.parent / 'elsewhere')
    self.addCleanup(elsewhere.rename, self.root)
    documents.write(copied, evaluated=_EVALUATED)
    self.assertEqual((copied / run_directory.REPORT).read_text(), self.page)

  def test_nothing_secret_is_in_it(self):
    secret = self.root / 'secret'
    with open(secret / 'metrics.not_covered.csv', newline='') as file:
      rows = list(csv.DictReader(file))
    self.assertIn('client_work/train/loss.not_covered', rows[0])
    self.assertNotIn(_CANARY, self.page)
    self.assertNotIn('.not_covered</', self.page)
    self.assertNotIn('loss', self.page.split('The statement in twelve')[0])
    for row in rows:
      # The canaries, as a table or a chart might write them.
      number = float(row['client_work/train/loss.not_covered'])
      self.assertGreater(number, 3 * _DATA)
      for text in (f'{number:.6g}', f'{number:.0f}', f'{number / 1e6:.4g}'):
        self.assertNotIn(text, self.page)


class DocumentsTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.parent = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
    self.root = self.parent / 'run'
    self.report = self.root / 'release' / run_directory.REPORT
    self.curves = self.root / 'release' / documents.CURVES

  def test_no_report_of_fewer_rounds_than_were_released(self):
    _run(self.root, total_rounds=2)
    self.assertTrue(self.report.exists())
    self.assertTrue(self.curves.exists())
    seen = []

    def evaluate(weights):
      # Checkpoints of earlier rounds have been released by now.
      seen.append(self.report.exists() or self.curves.exists())
      return toy.evaluate(weights)

    _run(self.root, checkpoint_every=1, rounds_per_eval=4, evaluate_fn=evaluate)
    self.assertEqual(seen, [False] * 3)
    self.assertIn('10 of 10 planned are done', self.report.read_text())
    self.assertTrue(self.curves.exists())

  def test_long_runs_are_thinned(self):
    path = self.parent / 'metrics.csv'
    with open(path, 'w', newline='') as file:
      file.write('round,epsilon,loss,word\r\n')
      for t in range(1, 2001):
        file.write(f'{t},{"inf" if t < 4 else t},{t if t % 100 == 0 else ""},x\r\n')
    series = documents._read_series(path)
    self.assertEqual(series['epsilon'].rounds[0], 4)
    self.assertEqual(series['epsilon'].rounds[-1], 2000)
    self.assertLessEqual(len(series['epsilon'].rounds), 501)
    self.assertEqual(series['loss'].rounds, list(range(100, 2001, 100)))
    self.assertEqual(series['epsilon'].rounds, series['epsilon'].values)
    self.assertEmpty(series['word'].rounds)

  def test_without_privacy_or_metrics(self):
    result = toy.train(
        toy.Process(),
        toy.build_plan(noise_multiplier=0.0),
        _Clients(),
        output_dir=self.root,
        delta=1e-5,
        progress='quiet',
    )
    self.assertEmpty(result.course.metrics)
    page = self.report.read_text()
    self.assertIn('No protection', page)
    self.assertNotIn('<svg', page)
    # There is nothing to draw.
    self.assertFalse((self.root / 'release' / 'curves.png').exists())
    self.assertIsNone(re.search('Budget spent|Epsilon by delta', page))


if __name__ == '__main__':
  absltest.main()
