# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The logistic model with 33 known weights, and how well they can be found.

The model comes from the experiments of arXiv:1807.04369. It has one boolean B,
two categories E1 (three values) and E2 (four), a double D and an integer I,
with most of their products. The paper prints B*E2 twice. Here the second B*E2
is read as D*E2, the only product that would be missing otherwise. The paper
does not give the distributions of the features. Here B and I are fair coins, E1
and E2 uniform, D standard normal, clipped to [-3, 3].

Clients see features in [0, 1]: D is scaled with its public bounds, and the
products are products of scaled features. The model is the same with and without
the scaling. A linear map turns its weights on scaled features into its weights
on unscaled features, and back.
"""

import functools

import numpy as np

# Terms of a product of features; the last category is the reference.
_E1 = ('E11', 'E12')
_E2 = ('E21', 'E22', 'E23')
_COEFFICIENTS = {
    '1': 0.34,
    'B': -1.18,
    'E11': 1.05,
    'E12': 1.60,
    'E21': -1.51,
    'E22': 0.72,
    'E23': 1.36,
    'D': -1.41,
    'I': -1.67,
    'B*E11': -1.14,
    'B*E12': 1.30,
    'B*E21': 1.72,
    'B*E22': 0.18,
    'B*E23': -1.52,
    'B*D': 1.72,
    'B*I': -1.17,
    'E11*E21': -0.12,
    'E11*E22': -0.53,
    'E11*E23': 1.00,
    'E12*E21': -0.42,
    'E12*E22': -1.64,
    'E12*E23': -1.53,
    'D*E11': 0.64,
    'D*E12': 0.48,
    'I*E11': -0.17,
    'I*E12': 0.44,
    'D*E21': -0.51,
    'D*E22': -0.68,
    'D*E23': 1.65,
    'I*E21': 0.51,
    'I*E22': -1.64,
    'I*E23': 0.57,
    'D*I': -0.80,
}
TERMS = tuple(_COEFFICIENTS)
TRUE_WEIGHTS = np.array(list(_COEFFICIENTS.values()))
NUM_WEIGHTS = len(TERMS)
# Public: what clients scale D with.
LARGEST_D = 3.0
_EVALUATED_EXAMPLES = 100_000


def design(base, stack):
  """Returns the 33 features, in the order of `TERMS`.

  Args:
    base: Arrays or tensors of one shape by name: B, E11, E12, E21, E22, E23, D,
      I. D may be scaled or not.
    stack: Function that stacks a list of these along a new last axis.
  """
  base = {**base, '1': base['B'] * 0 + 1}
  columns = []
  for term in TERMS:
    names = term.split('*')
    column = base[names[0]]
    for name in names[1:]:
      column = column * base[name]
    columns.append(column)
  return stack(columns)


def scaling() -> np.ndarray:
  """Returns A, where weights on scaled features = A times weights. Exact.

  D = 2 L s - L for the scaled s in [0, 1], so a term D*X is 2 L (s*X) - L X.
  """
  index = {term: row for row, term in enumerate(TERMS)}
  matrix = np.eye(NUM_WEIGHTS)
  for term in TERMS:
    names = term.split('*')
    if 'D' not in names:
      continue
    rest = '*'.join(name for name in names if name != 'D') or '1'
    matrix[index[term], index[term]] = 2 * LARGEST_D
    matrix[index[rest], index[term]] = -LARGEST_D
  return matrix


def to_scaled(weights: np.ndarray) -> np.ndarray:
  """Returns the weights on features in [0, 1], shape [..., 33]."""
  return np.asarray(weights, np.float64) @ scaling().T


def from_scaled(weights: np.ndarray) -> np.ndarray:
  """Returns the weights on features as they are, shape [..., 33]."""
  return np.asarray(weights, np.float64) @ np.linalg.inv(scaling()).T


def draw(rng: np.random.Generator, num_examples: int):
  """Returns (scaled features [n, 33], labels [n]) as NumPy arrays."""
  e1 = rng.integers(3, size=num_examples)
  e2 = rng.integers(4, size=num_examples)
  normal = np.clip(rng.standard_normal(num_examples), -LARGEST_D, LARGEST_D)
  base = {
      'B': rng.integers(2, size=num_examples).astype(np.float64),
      **{name: (e1 == row) * 1.0 for row, name in enumerate(_E1)},
      **{name: (e2 == row) * 1.0 for row, name in enumerate(_E2)},
      'D': (normal + LARGEST_D) / (2 * LARGEST_D),
      'I': rng.integers(2, size=num_examples).astype(np.float64),
  }
  features = design(base, lambda columns: np.stack(columns, axis=-1))
  logits = features @ to_scaled(TRUE_WEIGHTS)
  labels = rng.random(num_examples) < 1 / (1 + np.exp(-logits))
  return features, labels.astype(np.float64)


@functools.lru_cache(maxsize=1)
def information(num_examples: int = 200_000) -> np.ndarray:
  """Returns the Fisher information of one example, on scaled features.

  An average over simulated examples.
  """
  features, _ = draw(np.random.default_rng(0), num_examples)
  shares = 1 / (1 + np.exp(-features @ to_scaled(TRUE_WEIGHTS)))
  return (features * (shares * (1 - shares))[:, np.newaxis]).T @ (
      features
  ) / num_examples


def expected_error(
    *,
    learning_rate: float,
    num_steps: float,
    num_clients: int,
    noise_variance: float,
    initial_variance: float,
) -> tuple[float, float, float]:
  """Returns root mean squares: (left of the start, fluctuation, sample).

  *Heuristic*: the gradient is linearised around the truth. An instance has a
  chain of S steps behind it, from a start around 0. Let H be the information. A
  share exp(-H g S) of the start's distance is left. After some k^2 updates, all
  instances descend from one of the first instances. The same share of the
  offset of that instance is left. The covariance V of an instance in the long
  run solves H V + V H = g H + (noise variance / g) I, so V = g/2 I for clients
  without noise. Averaging instances lowers V little, because they share their
  ancestors. Clients that come again are a sample of n. The best weights for
  this sample are off by the covariance H^-1/n. Fluctuation and sample grow to
  these values while the start fades. All results are for unscaled features.

  Args:
    learning_rate: Learning rate g.
    num_steps: Number of steps S, `plan.steps_per_round` in every round: T/k for
      T updates one by one, less if clients are in flight at once.
    num_clients: Number n of clients, with one example each.
    noise_variance: Variance of the noise on one weight of one update.
    initial_variance: Variance of one weight over the instances at the start.
  """
  eigenvalues, vectors = np.linalg.eigh(information())
  back = np.linalg.inv(scaling())
  progress = learning_rate * num_steps
  start = -vectors.T @ to_scaled(TRUE_WEIGHTS)
  shares = np.exp(-eigenvalues * progress)
  left = back @ vectors @ (shares * start)
  offset = back @ vectors * (shares * np.sqrt(initial_variance))
  variances = learning_rate / 2 + noise_variance / (
      2 * learning_rate * eigenvalues
  )
  variances *= -np.expm1(-2 * eigenvalues * progress)
  spread = back @ vectors * np.sqrt(variances)
  sample = back @ vectors * (
      (1 - shares) / np.sqrt(eigenvalues * num_clients)
  )
  return (
      float(np.sqrt(np.mean(left**2) + np.sum(offset**2) / NUM_WEIGHTS)),
      float(np.sqrt(np.sum(spread**2) / NUM_WEIGHTS)),
      float(np.sqrt(np.sum(sample**2) / NUM_WEIGHTS)),
  )


def error(weights: np.ndarray) -> float:
  """Returns the root mean square error of weights on scaled features."""
  difference = from_scaled(weights) - TRUE_WEIGHTS
  return float(np.sqrt(np.mean(difference**2)))


def quality(weights: np.ndarray) -> dict[str, float]:
  """Returns how well weights on scaled features predict 100,000 new examples.

  The paper prints outcome rate, accuracy, precision and recall.
  """
  features, labels = draw(np.random.default_rng([1, 1]), _EVALUATED_EXAMPLES)
  positive = features @ weights > 0
  correct = positive == labels.astype(bool)
  hits = np.sum(positive & correct)
  return {
      'outcome rate': float(np.mean(labels)),
      'accuracy': float(np.mean(correct)),
      'precision': float(hits / max(1, np.sum(positive))),
      'recall': float(hits / max(1, np.sum(labels))),
  }
