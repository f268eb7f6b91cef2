# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What is measured of a bundle, on noise that was drawn for the test."""

import dataclasses
import types
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tests.statement import occasions
from tff_dp import check_ins
from tff_dp import mechanisms
from tff_dp import participation
from tff_dp import plans
from tff_dp.export import measuring
from tff_dp.export import noise
from tff_dp.export import verification
from tff_dp.mechanisms import randomizers
from tff_dp.program import certification

_NUM, _PARAMS, _ROUNDS = 400, 20, 3
_DIVISOR = 5.0
_HONAKER = occasions.PLANS['honaker']()
# Half of the budget is for the bits, so that their noise is not the updates'.
_ADAPTIVE = dataclasses.replace(
    occasions.PLANS['adaptive'](),
    adaptive_clipping=mechanisms.AdaptiveClipping(budget_share=0.5),
)


def _local(randomizer) -> plans.CheckInPlan:
  return plans.CheckInPlan(check_ins.FixedWindowCheckIn(4, 0.5), randomizer)


def _words() -> np.ndarray:
  rng = np.random.default_rng(1)
  return rng.integers(-(2**63), 2**63 - 1, _NUM, np.int64)


def _central(plan, *, num_rounds: int, share=1.0, memory=1.0, **changes):
  """Returns what rounds of a plan mark, or of a plan with other noise.

  Args:
    plan: The plan.
    num_rounds: Rounds of each state.
    share: Share of the planned standard deviation.
    memory: Share of the planned covariance of two rounds.
    **changes: Other fields.
  """
  rng = np.random.default_rng(2)
  covariance = noise.covariance(plan.mechanism, num_rounds)
  covariance = np.where(np.eye(num_rounds), 1.0, memory) * covariance
  white = rng.standard_normal([_NUM, num_rounds, _PARAMS])
  drawn = np.einsum('rs,nsp->nrp', np.linalg.cholesky(covariance), white)
  multiplier = plan.noise_multiplier
  if plan.adaptive_clipping is not None:
    multiplier = plan.noise_multiplier_by_domain['value']
  drawn *= share * multiplier * plan.l2_norm_clip / _DIVISOR
  drawn = drawn.astype(np.float32)
  marked = [drawn[:, 0], _words()]
  if plan.adaptive_clipping is not None:
    marked.append(rng.standard_normal(_NUM).astype(np.float32))
  later = drawn[:, 1:] if num_rounds > 1 else None
  return measuring._Drawn(**dict(marked=marked, later=later) | changes)


class CentralTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    release = types.SimpleNamespace(divisor=_DIVISOR)
    self.enterContext(
        mock.patch.object(
            certification,
            'certify_computation',
            lambda *_: types.SimpleNamespace(release=release),
        )
    )

  @parameterized.parameters((_HONAKER, _ROUNDS), (_ADAPTIVE, 1))
  def test_noise_of_the_plan_passes_and_less_or_more_does_not(
      self, plan, num_rounds
  ):
    law = measuring._law_of(plan)
    said = law(_central(plan, num_rounds=num_rounds), None)
    self.assertIn(f'{_PARAMS} coordinates of round', said)
    for share in (0.95, 1.05):
      drawn = _central(plan, num_rounds=num_rounds, share=share)
      with self.assertRaisesRegex(verification.Wrong, 'all coordinates'):
        law(drawn, None)

  def test_rounds_with_too_little_in_common_do_not_pass(self):
    drawn = _central(_HONAKER, num_rounds=_ROUNDS, memory=0.2)
    with self.assertRaisesRegex(verification.Wrong, 'rounds 1 to 3'):
      measuring._law_of(_HONAKER)(drawn, None)

  @parameterized.named_parameters(
      ('no_digest', lambda marked: marked[:1]),
      ('two_vectors', lambda marked: [*marked, marked[0]]),
      ('a_share_more', lambda marked: [*marked, marked[0][:, 0]]),
      ('float64', lambda marked: [marked[0].astype(float), marked[1]]),
      ('small_digest', lambda marked: [marked[0], marked[1] & ~np.int64(255)]),
  )
  def test_other_marked_values_do_not_pass(self, change):
    drawn = _central(_HONAKER, num_rounds=_ROUNDS)
    with self.assertRaises(verification.Wrong):
      measuring._law_of(_HONAKER)(
          drawn._replace(marked=change(drawn.marked)), None
      )

  def test_rounds_to_run(self):
    def rounds(mechanism):
      return measuring._num_rounds(
          plans.DpFtrlPlan(
              mechanism,
              participation.MinSeparation(8, min_index_gap=2),
              l2_norm_clip=1.0,
              clients_per_round=4,
              noise_multiplier=1.0,
          )
      )

    self.assertEqual(rounds(mechanisms.HonakerTree(8)), 3)
    self.assertEqual(rounds(mechanisms.Tree(8, restart_every=2)), 2)
    self.assertEqual(measuring._num_rounds(_ADAPTIVE), 1)
    local = _local(randomizers.Gaussian(2.0, 0.25))
    self.assertEqual(measuring._num_rounds(local), 1)


class LocalTest(parameterized.TestCase):

  def _reports(self, plan, share):
    rng = np.random.default_rng(3)
    if isinstance(plan.randomizer, randomizers.Gaussian):
      # Noise multiplier 2, clip norm 0.25.
      drawn = rng.normal(scale=2.0 * 0.25, size=[_NUM, _PARAMS])
    else:
      # Two vectors of L1 norm 0.5 differ by 1 at most.
      drawn = rng.laplace(scale=1.0 / 0.25, size=[_NUM, _PARAMS])
    return (1.0 + share * drawn).astype(np.float32)

  @parameterized.parameters(
      randomizers.Gaussian(2.0, 0.25),
      randomizers.Laplace(0.25, l1_norm_clip=0.5),
  )
  def test_every_report_has_the_noise_of_the_plan(self, randomizer):
    plan = _local(randomizer)
    law = measuring._law_of(plan)
    right, wrong = (self._reports(plan, share) for share in (1.0, 0.9))
    law(measuring._Drawn([right, right], None), None)
    for marked in ([wrong, right], [right, wrong], [1.2 * right]):
      with self.assertRaisesRegex(verification.Wrong, 'planned'):
        law(measuring._Drawn(marked, None), None)
    for other in (right.astype(float), right[:, 0], right.astype(np.int64)):
      with self.assertRaisesRegex(verification.Wrong, 'is marked as noised'):
        law(measuring._Drawn([right, other], None), None)

  def test_what_cannot_be_measured_is_said(self):
    for plan in (
        occasions.PLANS['shuffled'](),
        occasions.PLANS['gaussian_steps'](),
        occasions.PLANS['silos'](),
        occasions.PLANS['secure_sums'](),
    ):
      self.assertIsInstance(measuring._law_of(plan), str, plan.kind)

  def test_nothing_is_measured_where_nothing_is_claimed(self):
    plan = occasions.PLANS['non_private']()
    found = measuring._measure(None, None, plan, seconds=0)
    self.assertEqual(
        [(each.check, each.status) for each in found],
        [('key', 'not checked'), ('noise', 'not checked')],
    )


class KeysTest(absltest.TestCase):

  def test_a_key_that_two_states_share_is_found_in_any_marked_value(self):
    rng = np.random.default_rng(4)
    vectors = rng.normal(size=[_NUM, 5]).astype(np.float32)
    marked = [vectors, _words()]
    self.assertIn(f'{_NUM} new keys', measuring._check_keys(marked, _HONAKER))
    for number in range(2):
      repeated = [each.copy() for each in marked]
      repeated[number][7] = repeated[number][300]
      with self.assertRaisesRegex(verification.Wrong, f'only {_NUM - 1} diff'):
        measuring._check_keys(repeated, _HONAKER)

  def test_keys_and_nothing_else_are_new(self):
    state, other = (
        {'model': [number], 'aggregator': {'key': number, 'round': number}}
        for number in (1, 2)
    )
    found = measuring._with_keys_of(state, other)
    self.assertEqual(found.model[0], 1)
    self.assertEqual((found.aggregator.key, found.aggregator.round), (2, 1))

  def test_coordinates_are_from_the_whole_vector(self):
    few = measuring._of_few_params(np.arange(10_001))
    self.assertEqual((few[0], few[-1]), (0, 10_000))
    self.assertLess(np.diff(few).max(), 4)
    np.testing.assert_array_equal(
        measuring._of_few_params(np.arange(9)), np.arange(9)
    )


if __name__ == '__main__':
  absltest.main()
