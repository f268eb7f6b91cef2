# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Accelerated against plain one-pass SGD where the optimum is known.

Two silos have quadratic objectives of one spectrum, j^-2, and minimisers far
apart, at +2 and -2 in every coordinate; the optimum of their mean is zero. The
start is 0.5 j in coordinate j, so most of the risk is where the curvature is
small: there plain SGD needs of the order of 1 / risk rounds, and the
accelerated one of the order of its root.
"""

from absl.testing import absltest
import numpy as np
import pytest

from tests.systems.silos import toy
from tff_dp import execution
from tff_dp import silos
from tff_dp.accounting.curves import gaussian
from tff_dp.systems.silos import minibatch_schedules
from tff_dp.systems.silos import planning

_SIZE = 12
_SPECTRUM = np.arange(1.0, _SIZE + 1) ** -2
_START = 0.5 * np.arange(1.0, _SIZE + 1)
_DIAMETER = float(np.linalg.norm(_START))
_ROUNDS = 40
_BLOCK = 100
_RECORDS = _ROUNDS * _BLOCK
_CLIP = 9.0
_EPSILON, _DELTA = 8.0, 1e-6
# Of single records, whose coordinates have unit variance.
_VARIANCE = float(np.sum(_SPECTRUM**2))


def setUpModule():
  execution.set_default_context()


def _data():
  rng = np.random.default_rng(0)
  data = {}
  for name, centre in (('north', 2.0), ('south', -2.0)):
    rows = rng.standard_normal([_RECORDS, _SIZE])
    data[name] = toy.examples(rows - rows.mean(axis=0) + centre, batch=500)
  return data


def _risk(weights):
  return 0.5 * np.sum(_SPECTRUM * np.square(weights))


class ConvexProblemTest(absltest.TestCase):

  @pytest.mark.slow
  def test_accelerated_needs_at_most_half_the_rounds_of_plain(self):
    data, half = _data(), _ROUNDS // 2
    model = toy.build_model(_SIZE, curvature=_SPECTRUM, initial=_START)
    arguments = dict(
        silos={
            name: toy.SiloBudget(_RECORDS, _EPSILON, _DELTA) for name in data
        },
        num_rounds=_ROUNDS,
        l2_norm_clip=_CLIP,
        model_aggregator=toy.Tap(),
        # The bounds hold in expectation: other noise may exceed them.
        insecure_seed=3,
    )
    # Blocks are as large as those of plain SGD, so the noise is the same.
    sigma = 2 * _CLIP / _BLOCK * gaussian.sigma_for(
        epsilon=_EPSILON, delta=_DELTA
    )
    variance = minibatch_schedules.round_variance(
        _BLOCK,
        noise_stddev=sigma,
        num_params=_SIZE,
        num_silos=2,
        num_available=2,
        example_variance=_VARIANCE,
        silo_variance=0.0,
    )
    schedule = dict(diameter=_DIAMETER, variance=variance)
    gamma = minibatch_schedules.best_gamma(half, smoothness=1.0, **schedule)
    accelerated = toy.Runner(
        silos.build_one_pass_accelerated_mb_sgd(
            model,
            stages=[
                minibatch_schedules.Stage(half, gamma),
                minibatch_schedules.Stage(_ROUNDS - half, gamma),
            ],
            **arguments,
        )
    )
    (phase,) = accelerated.process.plan.terms['north'].phases
    self.assertAlmostEqual(phase.noise_stddev, sigma, delta=1e-4 * sigma)
    for r in range(1, half + 1):
      accelerated.round(data)
      bound = minibatch_schedules.accelerated_bound(r, gamma=gamma, **schedule)
      self.assertLess(_risk(accelerated.result), bound)
    plain = toy.Runner(
        silos.build_noisy_mb_sgd(
            model,
            sampling=planning.equal_blocks(arguments['silos'], _ROUNDS),
            # 1 / (2 beta), the largest step of its analysis.
            learning_rate=0.5,
            averaging='uniform',
            **arguments,
        )
    )
    for _ in range(_ROUNDS):
      plain.round(data)
    # E F - F* <= beta D^2 / R + V^2 / (2 beta) for the average, at this step.
    self.assertLess(
        _risk(plain.result), _DIAMETER**2 / _ROUNDS + variance / 2
    )
    risk = _risk(accelerated.result)
    print(
        f'excess risk: accelerated {risk:.3f} after {half} rounds, plain'
        f' {_risk(plain.result):.3f} (average), {_risk(plain.sent_out):.3f}'
        f' (last) after {_ROUNDS}'
    )
    self.assertLess(risk, _risk(plain.result))
    self.assertLess(risk, _risk(plain.sent_out))


if __name__ == '__main__':
  absltest.main()
