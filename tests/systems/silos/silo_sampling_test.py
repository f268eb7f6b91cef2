# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for the cost of sampling inside a silo, against numeric integration."""

import itertools
import math

from absl.testing import absltest
from absl.testing import parameterized
import mpmath
import numpy as np
from scipy import special
from scipy import stats

from tff_dp import _checks
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.curves import privacy_profiles
from tff_dp.systems.silos import silo_sampling

_EPSILONS = np.array([0.0, 0.05, 0.4, 1.0, 2.5, 6.0])
_DELTA = 1e-5
_SAMPLINGS = (
    silo_sampling.PoissonSampling(100),
    silo_sampling.FixedSize(100),
    silo_sampling.DisjointBlocks(35),
)


def _hockey_stick(p, q, epsilons, cell):
  """Returns H_E of two densities on a common grid."""
  return np.array(
      [np.maximum(p - math.exp(e) * q, 0).sum() * cell for e in epsilons]
  )


def _mixture(grid, weights, means, s):
  return sum(w * stats.norm.pdf(grid, m, s) for w, m in zip(weights, means))


def _line(s, reach=12.0):
  """Returns (grid, cell) that holds the mass of all N(m, s^2), |m| <= 4."""
  grid = np.linspace(-4 - reach * s, 4 + reach * s, 200_001)
  return grid, grid[1] - grid[0]


def _epsilon(sampling, **changes):
  settings = dict(
      num_records=1238, num_rounds=35, noise_multiplier=4.0, delta=_DELTA
  )
  return silo_sampling.epsilon(sampling, **(settings | changes))


class ProfilesTest(parameterized.TestCase):

  @parameterized.product(q=(0.003, 0.08, 0.5, 1.0), s=(0.4, 1.0, 5.0))
  def test_poisson_is_the_integral_of_its_pair_in_both_directions(self, q, s):
    grid, cell = _line(s)
    p = _mixture(grid, (1 - q, q), (0, 1), s)
    r = _mixture(grid, (1 - q, q), (0, -1), s)
    found = silo_sampling.poisson_profile(noise_multiplier=s, rate=q)(_EPSILONS)
    for first, second in ((p, r), (r, p)):
      expected = _hockey_stick(first, second, _EPSILONS, cell)
      np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-12)

  @parameterized.product(q=(1e-6, 0.08, 0.99, 1.0), s=(0.05, 1.0, 60.0))
  def test_both_are_rounded_up(self, q, s):
    # H_E of three normal tails, or of two where all is known, with 80 digits.
    epsilons = np.array([0.0, 1e-9, 0.05, 1.0, 2.5])
    poisson = silo_sampling.poisson_profile(noise_multiplier=s, rate=q)
    convex = silo_sampling.convex_profile(noise_multiplier=s, rate=q)
    with mpmath.workdps(80):
      q, s = mpmath.mpf(q), mpmath.mpf(s)
      above = lambda x: mpmath.erfc(x / mpmath.sqrt(2)) / 2
      a = mpmath.exp(-1 / (2 * s * s))
      for epsilon, *found in zip(epsilons, poisson(epsilons), convex(epsilons)):
        odds = mpmath.exp(mpmath.mpf(epsilon))
        rest = (1 - q) * (odds - 1)
        t = rest + mpmath.sqrt(rest**2 + 4 * odds * (q * a) ** 2)
        cut = s * mpmath.log(t / (2 * q * a))
        tails = above(cut - 1 / s), above(cut + 1 / s), above(cut)
        raised = mpmath.log(1 + (odds - 1) / q)
        least = (
            q * tails[0] - odds * q * tails[1] - rest * tails[2],
            q * above(raised * s / 2 - 1 / s)
            - (q + odds - 1) * above(raised * s / 2 + 1 / s),
        )
        for delta, exact in zip(found, least):
          self.assertGreaterEqual(mpmath.mpf(delta), exact)
          self.assertLessEqual(delta, exact * (1 + 1e-9) + 1e-15)

  @parameterized.product(q=(0.003, 0.08, 0.5, 1.0), s=(0.8, 2.0, 8.0))
  def test_convex_is_the_worse_direction_of_the_fixed_size_pair(self, q, s):
    # In units where a replaced record moves the sum by 1.
    z = s / 2
    grid, cell = _line(z)
    p = _mixture(grid, (1 - q, q), (0, 1), z)
    r = stats.norm.pdf(grid, 0, z)
    found = silo_sampling.convex_profile(noise_multiplier=s, rate=q)(_EPSILONS)
    worse = _hockey_stick(p, r, _EPSILONS, cell)
    better = _hockey_stick(r, p, _EPSILONS, cell)
    np.testing.assert_allclose(found, worse, rtol=1e-5, atol=1e-12)
    self.assertTrue(np.all(better <= found + 1e-7))

  @parameterized.product(q=(0.1, 0.6), s=(0.5, 1.5))
  def test_no_pair_in_the_plane_is_worse_than_opposite_unit_vectors(self, q, s):
    axis = np.linspace(-1 - 7 * s, 1 + 7 * s, 801)
    cell = (axis[1] - axis[0]) ** 2
    x, y = np.meshgrid(axis, axis, indexing='ij')

    def density(u):
      centred = np.exp(-((x - u[0]) ** 2 + (y - u[1]) ** 2) / (2 * s * s))
      return centred / (2 * math.pi * s * s)

    bound = silo_sampling.poisson_profile(noise_multiplier=s, rate=q)(_EPSILONS)
    zero = density((0, 0))
    for angle, length in itertools.product(
        np.linspace(0, math.pi, 5), (1.0, 0.7)
    ):
      other = (length * math.cos(angle), length * math.sin(angle))
      p = (1 - q) * zero + q * density((1, 0))
      r = (1 - q) * zero + q * density(other)
      for first, second in ((p, r), (r, p)):
        found = _hockey_stick(first, second, _EPSILONS, cell)
        self.assertTrue(np.all(found <= bound + 2e-5), (angle, length))
      if angle == math.pi and length == 1.0:
        np.testing.assert_allclose(found, bound, atol=2e-5)

  @parameterized.product(
      others=((0.0, 0.0, 0.0), (1.0, -1.0, 0.5), (-1.0, -1.0, -1.0)),
      replaced=((1.0, -1.0), (1.0, 0.0), (0.3, -0.9)),
      kind=('poisson', 'fixed'),
  )
  def test_all_batches_of_four_records(self, others, replaced, kind):
    n, batch, s = 4, 2, 1.3
    grid, cell = _line(s)
    sampling = silo_sampling.build(kind, batch)
    laws = []
    for mine in replaced:
      records = np.array([mine, *others])
      law = np.zeros_like(grid)
      if kind == 'poisson':
        batches = itertools.product((0, 1), repeat=n)
        weight = 2.0**-n
      else:
        chosen = itertools.combinations(range(n), batch)
        batches = [[int(i in c) for i in range(n)] for c in chosen]
        weight = 1 / math.comb(n, batch)
      for members in batches:
        total = float(np.array(members) @ records)
        law += weight * stats.norm.pdf(grid, total, s)
      laws.append(law)
    for published_proofs in (False, True):
      bound = sampling.profile(
          num_records=n, noise_multiplier=s, published_proofs=published_proofs
      )(_EPSILONS)
      for first, second in (laws, laws[::-1]):
        found = _hockey_stick(first, second, _EPSILONS, cell)
        self.assertTrue(np.all(found <= bound * (1 + 1e-5) + 1e-9))
        if (
            kind == 'poisson'
            and not published_proofs
            and replaced == (1.0, -1.0)
            and not any(others)
        ):
          np.testing.assert_allclose(found, bound, rtol=1e-4, atol=1e-9)

  def test_fixed_size_worst_case_is_attained(self):
    # All others like the new record: the old one is told from all.
    n, batch, s = 4, 2, 1.3
    grid, cell = _line(s)
    with_it = 0.5 * stats.norm.pdf(grid, -2, s) + 0.5 * stats.norm.pdf(
        grid, 0, s
    )
    without = stats.norm.pdf(grid, -2, s)
    found = _hockey_stick(with_it, without, _EPSILONS, cell)
    bound = silo_sampling.FixedSize(batch).profile(
        num_records=n, noise_multiplier=s
    )(_EPSILONS)
    np.testing.assert_allclose(found, bound, rtol=1e-5, atol=1e-12)

  @parameterized.product(q=(0.001, 0.3, 1.0), s=(0.05, 1.0, 60.0))
  def test_profiles_fall_and_stay_finite(self, q, s):
    epsilons = np.concatenate([[0], np.geomspace(1e-9, 600, 300)])
    for build in (silo_sampling.poisson_profile, silo_sampling.convex_profile):
      found = build(noise_multiplier=s, rate=q)(epsilons)
      self.assertTrue(np.all((found >= 0) & (found <= 1)))
      self.assertTrue(np.all(np.diff(found) <= 1e-9 * found[:-1] + 1e-15))
      self.assertLessEqual(found[0], q * (1 + 1e-9))


class ComposedTest(parameterized.TestCase):

  @parameterized.product(rounds=(1, 7, 100), s=(2.0, 15.0))
  def test_whole_batches_are_the_analytic_gaussian(self, rounds, s):
    # Through the privacy-loss distribution, which `epsilon` would skip.
    profile = silo_sampling.PoissonSampling(50).profile(
        num_records=50, noise_multiplier=s
    )
    single = privacy_profiles.to_pld(profile)
    found = single.self_compose(rounds).get_epsilon_for_delta(_DELTA)
    sigma = s / 2 / math.sqrt(rounds)
    expected = gaussian.exact_epsilon(sigma=sigma, delta=_DELTA)
    self.assertBetween(found, expected * (1 - 1e-9), expected * 1.002)
    shortcut = silo_sampling.epsilon(
        silo_sampling.PoissonSampling(50),
        num_records=50,
        num_rounds=rounds,
        noise_multiplier=s,
        delta=_DELTA,
    )
    self.assertAlmostEqual(shortcut, expected, places=9)

  @parameterized.product(
      q=(0.1, 0.5), s=(0.8, 2.0), kind=('poisson', 'fixed')
  )
  def test_two_rounds_against_the_integral_over_the_plane(self, q, s, kind):
    axis = np.linspace(-2 - 9 * s, 2 + 9 * s, 1201)
    cell = (axis[1] - axis[0]) ** 2
    p = _mixture(axis, (1 - q, q), (0, 1), s)
    r = _mixture(axis, (1 - q, q), (0, -1), s)
    if kind == 'fixed':
      p = _mixture(axis, (1 - q, q), (-1, 1), s)
      r = stats.norm.pdf(axis, -1, s)
    delta = 1e-3
    found = silo_sampling.epsilon(
        silo_sampling.build(kind, int(q * 100)),
        num_records=100,
        num_rounds=2,
        noise_multiplier=s,
        delta=delta,
    )
    # Also with directions that differ between the rounds.
    pairs = [((p, p), (r, r)), ((r, r), (p, p)), ((p, r), (r, p))]
    exact = [
        _hockey_stick(np.outer(*one), np.outer(*two), [found], cell)[0]
        for one, two in pairs
    ]
    self.assertLessEqual(max(exact), delta * (1 + 1e-6))
    # What is exact for Poisson is a bound for fixed size.
    self.assertGreater(max(exact), delta * (0.97 if kind == 'poisson' else 0.8))

  def test_poisson_matches_a_direct_convolution_of_losses(self):
    # Losses rounded up on a fine grid, convolved without Fourier transforms.
    q, s, rounds, interval = 0.2, 1.5, 6, 0.01
    grid, cell = _line(s)
    p = _mixture(grid, (1 - q, q), (0, 1), s)
    r = _mixture(grid, (1 - q, q), (0, -1), s)
    losses = np.log(p) - np.log(r)
    up = np.bincount(
        np.ceil(losses / interval).astype(int) + 2000, p * cell, 4001
    )
    down = np.bincount(
        np.floor(losses / interval).astype(int) + 2000, p * cell, 4001
    )

    def delta_of(law, epsilon):
      total = law
      for _ in range(rounds - 1):
        total = np.convolve(total, law)
      values = (np.arange(len(total)) - 2000 * rounds) * interval
      gains = np.maximum(1 - np.exp(epsilon - values), 0)
      return float(gains @ total)

    found = silo_sampling.epsilon(
        silo_sampling.PoissonSampling(20),
        num_records=100,
        num_rounds=rounds,
        noise_multiplier=s,
        delta=1e-4,
    )
    self.assertLess(delta_of(down, found), 1e-4)
    self.assertGreater(delta_of(up, found), 0.9e-4)

  @parameterized.product(
      sampling=_SAMPLINGS[:2], noise_multiplier=(0.9, 4.0, 20.0), rounds=(1, 35)
  )
  def test_published_proofs_is_never_below(
      self, sampling, noise_multiplier, rounds
  ):
    changes = dict(noise_multiplier=noise_multiplier, num_rounds=rounds)
    self.assertGreaterEqual(
        _epsilon(sampling, published_proofs=True, **changes) * (1 + 1e-9),
        _epsilon(sampling, **changes),
    )

  @parameterized.parameters(*_SAMPLINGS[:2])
  def test_monotone(self, sampling):
    noise = [_epsilon(sampling, noise_multiplier=m) for m in (1, 2, 4, 8, 16)]
    self.assertEqual(noise, sorted(noise, reverse=True))
    rounds = [_epsilon(sampling, num_rounds=r) for r in (1, 2, 10, 35, 36, 200)]
    self.assertEqual(rounds, sorted(rounds))
    rates = [_epsilon(sampling, num_records=n) for n in (2000, 1238, 300, 100)]
    self.assertEqual(rates, sorted(rates))

  def test_sampling_amplifies_and_never_beyond_the_whole_batch(self):
    for sampling in _SAMPLINGS[:2]:
      whole = gaussian.exact_epsilon(sigma=4 / 2 / 35**0.5, delta=_DELTA)
      self.assertLess(_epsilon(sampling), whole / 3)
      self.assertAlmostEqual(_epsilon(sampling, num_records=100), whole)

  def test_one_pass_costs_one_release(self):
    blocks = silo_sampling.DisjointBlocks(35)
    exact = gaussian.exact_epsilon(sigma=2.0, delta=_DELTA)
    for rounds in (1, 35):
      self.assertEqual(_epsilon(blocks, num_rounds=rounds), exact)

  def test_no_noise_hides_nothing(self):
    for sampling in _SAMPLINGS:
      self.assertEqual(_epsilon(sampling, noise_multiplier=0), math.inf)


class SmallDeltaTest(parameterized.TestCase):
  """At delta = 1 / n^2, which is what silos take by default."""

  def _delta(self, n, batch, rounds, s, epsilon):
    """Returns delta by sums of products of masses, none of them negative.

    About: the mass of a cell of outcomes goes to the two losses of a grid next
    to its own, so that their mean stays.
    """
    q, lowest, step, size = batch / n, -1.5, 0.003, 3001
    y = np.linspace(-38 * s, 38 * s, 200_001)
    cells = (1 - q) * _cells(y / s) + q * _cells((y - 1) / s)
    middle = (y[1:] + y[:-1]) / 2
    rise, fall = (
        np.log1p(q * np.expm1((sign * 2 * middle - 1) / 2 / s**2))
        for sign in (1, -1)
    )
    at = np.clip((rise - fall - lowest) / step, 0, size - 1.001)
    left = at.astype(int)
    base = np.bincount(left, cells * (1 - at + left), size)
    base += np.bincount(left + 1, cells * (at - left), size)
    zero, total = round(-lowest / step), None
    while rounds:
      if rounds & 1:
        total = base if total is None else np.convolve(total, base)[zero:]
        total = total[:size]
      base = np.convolve(base, base)[zero:][:size]
      rounds >>= 1
    losses = lowest + step * np.arange(size)
    return float(total @ -np.expm1(np.minimum(epsilon - losses, 0.0)))

  @parameterized.parameters(
      # n, batch, rounds, multiplier
      (10_000, 1, 1000, 0.6),
      (300_000, 1000, 500, 1.147),
      (1_000_000, 1000, 500, 0.9648),
      (1_000_000, 1, 1000, 0.5),
      (1_000_000, 1, 1000, 1.0),
      (1_000_000, 10, 100, 0.55),
  )
  def test_poisson(self, n, batch, rounds, multiplier):
    delta = 1 / n**2
    found = silo_sampling.epsilon(
        silo_sampling.PoissonSampling(batch),
        num_records=n,
        num_rounds=rounds,
        noise_multiplier=multiplier,
        delta=delta,
    )
    if found < 0.1:  # Below what the grid of the reference can tell apart.
      self.assertLess(self._delta(n, batch, rounds, multiplier, 0.1), delta)
      return
    settings = n, batch, rounds, multiplier
    self.assertLess(self._delta(*settings, 1.03 * found), delta)
    self.assertGreater(self._delta(*settings, 0.97 * found), delta)

  @parameterized.parameters(
      silo_sampling.PoissonSampling(1000), silo_sampling.FixedSize(1000)
  )
  def test_epsilon_falls_with_noise_and_is_at_most_that_of_no_sampling(
      self, sampling
  ):
    for delta in (1e-12, 1e-20, 1e-60):
      found = [
          _epsilon(
              sampling,
              num_records=10**6,
              num_rounds=500,
              noise_multiplier=multiplier,
              delta=delta,
          )
          for multiplier in (0.6, 1.0, 1.7, 3.0, 10.0)
      ]
      self.assertTrue(np.all(np.diff(found) < 0), found)
      alone = silo_sampling.gaussian_epsilon(
          noise_multiplier=0.6, count=500, delta=delta
      )
      self.assertLess(found[0], alone)


def _cells(edges):
  """Returns the normal mass between edges, with all digits in both tails."""
  low, high = edges[:-1], edges[1:]
  return np.where(
      low > 0,
      special.ndtr(-low) - special.ndtr(-high),
      special.ndtr(high) - special.ndtr(low),
  )


class ErrorsTest(parameterized.TestCase):

  @parameterized.parameters(
      (silo_sampling.PoissonSampling, 0),
      (silo_sampling.PoissonSampling, math.nan),
      (silo_sampling.FixedSize, 0),
      (silo_sampling.FixedSize, 2.5),
      (silo_sampling.DisjointBlocks, True),
  )
  def test_batch(self, kind, batch):
    with self.assertRaisesRegex(_checks.ArgumentError, 'batch='):
      kind(batch)

  def test_a_rate_is_no_batch(self):
    with self.assertRaisesRegex(
        _checks.ArgumentError, r'expected_batch=0.1(.*\n)+try: .*\* num_records'
    ):
      silo_sampling.PoissonSampling(0.1)

  @parameterized.parameters(*_SAMPLINGS)
  def test_fewer_records_than_the_batch(self, sampling):
    with self.assertRaisesRegex(
        _checks.ArgumentError, 'num_records=34 .* at least the batch of'
    ):
      _epsilon(sampling, num_records=34)

  def test_more_rounds_than_blocks(self):
    with self.assertRaisesRegex(
        _checks.ArgumentError, 'num_rounds=36 .* at most 35, the disjoint'
    ):
      _epsilon(silo_sampling.DisjointBlocks(35), num_rounds=36)

  @parameterized.parameters('delta', 'num_rounds', 'noise_multiplier')
  def test_others(self, name):
    with self.assertRaisesRegex(_checks.ArgumentError, f'{name}=-1'):
      _epsilon(_SAMPLINGS[0], **{name: -1})

  @parameterized.parameters(*_SAMPLINGS, silo_sampling.PoissonSampling(2.5))
  def test_json_round_trip(self, sampling):
    self.assertEqual(silo_sampling.from_json(sampling.to_json()), sampling)


if __name__ == '__main__':
  absltest.main()
