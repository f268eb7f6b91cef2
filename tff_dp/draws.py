# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The distribution of each random draw, and the outputs it cannot give.

Accountants assume a distribution: normal, Laplace, a coin. A draw on a computer
has finitely many values, so it differs from its distribution in two ways.

* **Its tail ends.** An output beyond the end tells two neighbours apart.
  `missing_delta` bounds the resulting increase of delta, and every plan counts
  it.
* **Its values lie on a grid** of floating-point numbers. No function here
  bounds what the grid reveals (I. Mironov, "On significance of the least
  significant bits for differential privacy", 2012). It stays a caveat of every
  statement.

| draw | used for | distribution | ends at |
|---|---|---|---|
| `streams.normals` | Gaussian noise of servers and clients | standard normal | radius 36.5 of a pair |
| `integrations.noise` | adapters for other stacks | standard normal | 36.4 |
| `streams.laplace` | Laplace reports | Laplace, scale 1 | 699 |
| `streams.bits` below a threshold | one-bit reports, randomized response | coins of 64 bits, rounded to the private side | nowhere: finitely many outputs |
| `streams.bits` in a table | noise of integers in secure sums | weights of 62 bits | 14 standard deviations or less: the plan counts the total variation |
| `coins.is_heads` | whether a client takes part | coins of 128 bits | nowhere |
| `streams.uniforms` below a rate | records that a client samples | coins of 52 bits | nowhere |
| `streams.directions` | directions of one-bit reports | none that a guarantee rests on | radius 4.86 of a pair |
| `streams.raw_normals` | the start of a pool | none that a guarantee rests on | 5.68 |

TensorFlow makes a pair of normals from one radius, and the radius from a
uniform that it cuts at 1e-7 (`random_distributions.h`). So its normals end at
5.68 standard deviations, which is far too early: with one participation,
epsilon 8 and delta 1e-6 the true delta would be 1.7e-5 at least. NumPy's
normals end at 13.7. Both get new tails here.
"""

import math

# TensorFlow's uniform has 23 bits in float32 and 52 in float64. If it is below
# this share, which both can represent exactly, a pair gets a new radius.
FAR_SHARE = 2.0**-19
# The squared radius of such a pair is this plus twice an exponential variable.
FAR_SQUARED_RADIUS = -2 * math.log(FAR_SHARE)
_UNIFORM_BITS = {4: 23, 8: 52}
# The exponential variable is minus the logarithm of a uniform of this many
# words of 63 bits.
TAIL_WORDS = 15
WORD_BITS = 63
WORD_SCALES = [2.0 ** (-WORD_BITS * n) for n in range(1, TAIL_WORDS + 1)]

# NumPy's normals beyond this value are drawn again.
NUMPY_FAR = 5.0
# Minus the logarithm of a normal's mass beyond it, on one side.
NUMPY_FAR_EXPONENT = -math.log(math.erfc(NUMPY_FAR / math.sqrt(2)) / 2)

# A Laplace draw is the logarithm of one word. Below this share, more words
# follow.
FAR_LAPLACE_SHARE = 2.0**-19

# All words of a tail are zero with probability 2^-945, and half of a last place
# stands for the rest. Before that, a pair must be far (2^-19), or a normal of
# NumPy beyond 5 (2^-20), or a first word of Laplace zero (2^-63).
_LOG_MISSING_MASS = -(TAIL_WORDS * WORD_BITS + 1 + 19) * math.log(2)
# A run of 2^40 vectors of 2^40 numbers. No machine makes more.
_LOG_MOST_DRAWS = 80 * math.log(2)
_LAST_BIT_OF_DELTA = 2.0**-54


# Sentences of statements.
ENDS = (
    'normals end beyond 36 standard deviations, Laplace draws beyond 699 scales;'
    ' delta counts what lies beyond, for at most 2^80 draws. See tff_dp.draws'
)
NO_ENDS = 'none: every draw has finitely many outputs, with exact probabilities'


def squared_radius_limit(num_bytes: int) -> float:
  """Returns the squared radius beyond which a pair of normals gets a new tail.

  TensorFlow makes the radius of a pair from a uniform number. The radius is
  beyond the limit if that number is below `FAR_SHARE`. The limit lies between
  the radii of two adjacent numbers, so rounding cannot move a radius across it.

  Args:
    num_bytes: Size of a float, 4 or 8 bytes.
  """
  return -2 * math.log(FAR_SHARE - 0.5 * 2.0 ** -_UNIFORM_BITS[num_bytes])


def missing_delta(epsilon: float) -> float:
  """Returns an upper bound on the increase of delta because draws end.

  Let tau be the total variation distance between all draws of a run and their
  distributions, not counting the grid. Let P(S) and Q(S) be the probabilities
  of a set S of outputs for two neighbours, and P_law(S), Q_law(S) those with
  draws from the distributions. If (epsilon, delta)-DP holds for the
  distributions, then (epsilon, delta + (1 + e^epsilon) tau)-DP holds for the
  draws:

  P(S) <= P_law(S) + tau <= e^epsilon Q_law(S) + delta + tau
  <= e^epsilon (Q(S) + tau) + delta + tau.

  Each draw adds its missing mass to tau, at most 2^-965, and a run has at most
  2^80 draws.

  Args:
    epsilon: Epsilon, at least 0. Infinity gives 1.
  """
  exponent = _LOG_MISSING_MASS + _LOG_MOST_DRAWS + math.log(2) + epsilon
  return 1.0 if exponent >= 0 else math.exp(exponent)


def counted(epsilon: float, delta: float) -> float:
  """Returns an epsilon for draws that end, given one for unbounded noise.

  Draws in floating point end at some size, but normal and Laplace distributions
  do not.

  Args:
    epsilon: Epsilon at delta if the noise had exactly these distributions.
    delta: Target delta, in (0, 1).

  Returns:
    `epsilon` if `missing_delta(epsilon)` is at most 2^-54 times delta, which
    float64 rounds away. Else infinity, which happens only for an epsilon of
    some hundreds.
  """
  if missing_delta(epsilon) > _LAST_BIT_OF_DELTA * delta:
    return math.inf
  return epsilon
