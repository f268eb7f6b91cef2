# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of what a run ends with."""

import dataclasses
import pathlib

from absl.testing import absltest
import numpy as np

import tff_dp
from tff_dp.accounting import rounding
from tff_dp.program import results
from tff_dp.statement import plain_words


def _result(**changes) -> results.TrainResult:
  plan = tff_dp.DpFtrlPlan(
      mechanism=tff_dp.mechanisms.HonakerTree(10),
      participation=tff_dp.participation.MinSeparation(10, min_index_gap=5),
      l2_norm_clip=1.0,
      clients_per_round=5,
      noise_multiplier=5.0,
  )
  arguments = dict(
      model_weights={'weights': np.zeros([100, 100])},
      metrics=[
          {'round': 5, 'epsilon': 1.0, 'test_accuracy': 0.5},
          {'round': 10, 'epsilon': 2.0, 'test_accuracy': 0.62519},
          {'round': 11, 'epsilon': 2.0},
      ],
      statement=plan.statement(delta=1e-5),
      epsilon=plan.epsilon(delta=1e-5),
      delta=1e-5,
      rounds_done=11,
      stop_reason=results.COMPLETED,
      message='',
      output_dir=pathlib.Path('runs/one'),
      evaluated=('test_accuracy',),
  )
  return results.TrainResult(**(arguments | changes))


class TrainResultTest(absltest.TestCase):

  def test_shows_itself_without_its_arrays(self):
    result = _result()
    epsilon = rounding.rounded_up(result.epsilon)
    self.assertEqual(
        repr(result),
        f'<TrainResult: epsilon {epsilon} at delta 1e-05 after 11 rounds'
        ' (completed); test_accuracy 0.6252; written to runs/one>',
    )

  def test_in_a_notebook(self):
    result = _result()
    shown = result._repr_markdown_()
    self.assertIn('- test_accuracy 0.6252\n- written to runs/one\n\n', shown)
    self.assertIn(plain_words.paragraph(result.statement.to_json()), shown)
    self.assertNotIn('array', shown)
    self.assertEqual(
        result.statement._repr_markdown_(), result.statement.to_markdown()
    )
    self.assertStartsWith(repr(result.statement), '<PrivacyStatement: **(')

  def test_says_why_it_stopped(self):
    shown = repr(_result(stop_reason=results.BUDGET, message='round 12 is refused'))
    self.assertIn('11 rounds (budget); round 12 is refused; test_acc', shown)

  def test_void_guarantee_has_no_epsilon(self):
    content = _result().statement
    headline = content.headline | {'epsilon': 'inf'}
    result = _result(
        statement=dataclasses.replace(content, headline=headline)
    )
    self.assertStartsWith(repr(result), '<TrainResult: NO PRIVACY at delta')
    self.assertNotIn('coin flip', result._repr_markdown_())


if __name__ == '__main__':
  absltest.main()
