# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Draw and discard without federation: millions of updates of small models.

    simulator = Simulator('logistic', step, num_features=33, num_instances=30)
    instances = simulator.initial_instances(key)
    for block in range(num_blocks):
      instances = simulator.advance(
          instances, streams.fold_in(key, block), features, labels)

Equal in distribution to the process of `tff_dp.learning.draw_and_discard` for
clients that all hold the same number of examples: in every round, `concurrency`
clients draw from the pool as it stands, and what they return is written in a
uniformly random order. All coins and noise of a block are drawn at once; only
the chain of updates is sequential, one XLA-compiled loop.

It simulates clients whose data it is given. Nothing here is private: the caller
sees the data, and knows the key.
"""

from typing import NamedTuple

import tensorflow as tf

from tff_dp import _checks
from tff_dp import streams
from tff_dp.mechanisms import client_steps
from tff_dp.mechanisms.instances import strategies

MODELS = ('linear', 'logistic', 'poisson', 'softmax')
STRATEGIES = (
    'draw_and_discard',
    'same',
    'accept_1_over_k',
    'average_random',
    'average_same',
    'server_batch',
)
INITIAL_VARIANCES = ('stationary', 'paper')
# These have one model.
_OF_ONE_MODEL = ('accept_1_over_k', 'server_batch')
# Up to this many floats it is faster to write the whole pool than one row.
_SMALL_POOL = 1 << 13
# The largest float32 below 1: a uniform draw of 0 must not give infinite noise.
_BELOW_ONE = 1 - 2.0**-24


class Draws(NamedTuple):
  """Everything random in a block of rounds; m is the concurrency.

  Attributes:
    order: int32 [rounds, m], which client is written first, second, ...
    drawn: int32 [rounds, m], the row that the l-th one written was given.
    replaced: int32 [rounds, m], the row that it is written over; -1 if it is
      discarded.
    noise: float32 [rounds, m, p], its noise.
  """

  order: tf.Tensor
  drawn: tf.Tensor
  replaced: tf.Tensor
  noise: tf.Tensor


class Simulator:
  """Draw and discard, or another strategy, on a generalised linear model.

  A client's step is `step`, with the gradient `mean (yhat - y) x` over its
  examples; weights are [num_features, num_classes], flattened. A constant
  feature is the caller's business.

  | strategy | what a returned model does |
  |---|---|
  | draw_and_discard | overwrites an instance drawn anew |
  | same | overwrites the instance that its client was given |
  | accept_1_over_k | with probability 1/k, overwrites the one model |
  | average_random | an instance drawn anew becomes the mean of both |
  | average_same | the client's instance becomes the mean of both |
  | server_batch | the one model becomes the mean of all `concurrency` |

  Attributes:
    num_params: p.
    num_rows: Models that are kept: k, or 1.
    step: What a client does.
    strategy: What the server does.
    concurrency: m, clients of a round.
  """

  def __init__(
      self,
      model: str,
      step: client_steps.ClientStep,
      *,
      num_features: int,
      num_instances: int,
      num_classes: int = 1,
      concurrency: int = 1,
      strategy: str = 'draw_and_discard',
  ):
    """Returns a simulator; nothing is compiled yet.

    Args:
      model: 'linear', 'logistic', 'poisson' or 'softmax'.
      step: Clip, learning rate and noise.
      num_features: Of one example.
      num_instances: k.
      num_classes: For softmax, at least 2.
      concurrency: m; for 'server_batch', the updates of one step.
      strategy: See the class.
    """
    _checks.one_of(MODELS, model=model)
    _checks.one_of(STRATEGIES, strategy=strategy)
    _checks.integer_at_least(1, num_features=num_features)
    _checks.integer_at_least(1, num_instances=num_instances)
    _checks.integer_at_least(1, concurrency=concurrency)
    if model == 'softmax':
      _checks.integer_at_least(2, num_classes=num_classes)
    else:
      _checks.integer_between(1, 1, num_classes=num_classes)
    self._model = model
    self._shape = (num_features, num_classes)
    self._num_instances = num_instances
    self.step = step
    self.strategy = strategy
    self.concurrency = concurrency
    self.num_params = num_features * num_classes
    self.num_rows = 1 if strategy in _OF_ONE_MODEL else num_instances
    self._scale = step.noise_scale(self.num_params)
    self._compiled = tf.function(self._apply, jit_compile=True, autograph=False)

  def initial_instances(
      self,
      key: tf.Tensor,
      weights=None,
      *,
      initial_variance: str = 'stationary',
  ) -> tf.Tensor:
    """Returns the pool to start from, float32 [num_rows, p].

    Independent normals around `weights`, with the spread that stays. One model
    starts at `weights` exactly.

    Args:
      key: int64 [2]; other than those of `advance`.
      weights: float [p]; zeros by default.
      initial_variance: 'stationary', for this concurrency, or 'paper'.
    """
    _checks.one_of(INITIAL_VARIANCES, initial_variance=initial_variance)
    if weights is None:
      weights = tf.zeros([self.num_params])
    weights = tf.reshape(tf.cast(weights, tf.float32), [1, self.num_params])
    variance = strategies.stationary_variance(
        self.num_rows,
        noise_variance=self.step.spread_variance(self.num_params),
        concurrency=1 if initial_variance == 'paper' else self.concurrency,
    )
    normals = tf.random.stateless_normal(
        [self.num_rows, self.num_params],
        streams.domain_key(key, 'initial instances'),
        alg=streams.ALGORITHM,
    )
    return weights + variance**0.5 * normals

  def advance(
      self, instances: tf.Tensor, key: tf.Tensor, features, labels
  ) -> tf.Tensor:
    """Returns the pool after a block of rounds.

    Args:
      instances: float32 [num_rows, p].
      key: int64 [2], a different one for every block.
      features: float32 [rounds, m, examples of a client, num_features].
      labels: [rounds, m, examples of a client]; integers for softmax.
    """
    num_rounds = tf.shape(features)[0]
    return self.apply(instances, self.draw(key, num_rounds), features, labels)

  def draw(self, key: tf.Tensor, num_rounds) -> Draws:
    """Returns all coins and noise of a block of rounds."""
    size = [num_rounds, self.concurrency]

    def uniform(purpose, limit):
      return tf.random.stateless_uniform(
          size,
          streams.domain_key(key, purpose),
          minval=0,
          maxval=limit,
          dtype=tf.int32,
          alg=streams.ALGORITHM,
      )

    drawn = uniform('draw', self.num_rows)
    if self.strategy in ('same', 'average_same'):
      replaced = drawn
    elif self.strategy == 'accept_1_over_k':
      accepted = uniform('replace', self._num_instances) < 1
      replaced = tf.where(accepted, 0, -1)
    else:
      replaced = uniform('replace', self.num_rows)
    ranks = tf.random.stateless_uniform(
        size, streams.domain_key(key, 'order'), alg=streams.ALGORITHM
    )
    order = tf.argsort(ranks, axis=1)
    return Draws(order, drawn, replaced, self._noise(key, size))

  def apply(
      self, instances: tf.Tensor, draws: Draws, features, labels
  ) -> tf.Tensor:
    """Returns the pool after the rounds of `draws`. Deterministic."""
    features = tf.cast(features, tf.float32)
    if features.shape[0] == 0:
      # XLA does not compile loops over nothing.
      return tf.cast(instances, tf.float32)
    if self._model == 'softmax':
      targets = tf.one_hot(tf.cast(labels, tf.int32), self._shape[1])
    else:
      targets = tf.cast(labels, tf.float32)[..., tf.newaxis]
    if self.concurrency > 1:
      features = tf.gather(features, draws.order, batch_dims=1)
      targets = tf.gather(targets, draws.order, batch_dims=1)
    return self._compiled(
        tf.cast(instances, tf.float32),
        draws.drawn,
        draws.replaced,
        draws.noise,
        features,
        targets,
    )

  def _noise(self, key, size):
    key = streams.domain_key(key, 'client noise')
    size = size + [self.num_params]
    if self.step.mechanism == 'gaussian':
      return self._scale * tf.random.stateless_normal(
          size, key, alg=streams.ALGORITHM
      )
    if self.step.mechanism is None:
      return tf.zeros(size)
    signed = tf.random.stateless_uniform(
        size, key, minval=-1.0, maxval=1.0, alg=streams.ALGORITHM
    )
    magnitude = -tf.math.log1p(-tf.minimum(tf.abs(signed), _BELOW_ONE))
    return self._scale * tf.sign(signed) * magnitude

  def _apply(self, instances, drawn, replaced, noise, features, targets):
    """The loop over rounds; compiled."""
    num_rounds = tf.shape(drawn)[0]

    def a_round(index, pool):
      returned = self._returned(
          tf.gather(pool, drawn[index]),
          noise[index],
          features[index],
          targets[index],
      )
      return index + 1, self._written(pool, returned, replaced[index])

    _, pool = tf.while_loop(
        lambda index, pool: index < num_rounds,
        a_round,
        (tf.constant(0), tf.ensure_shape(
            instances, [self.num_rows, self.num_params]
        )),
    )
    return pool

  def _returned(self, given, noise, features, targets):
    """Returns what the m clients of a round send back, [m, p]."""
    weights = tf.reshape(given, [self.concurrency, *self._shape])
    if self._shape[1] == 1:
      # A matrix product with one column is slower than the sum.
      predictor = tf.reduce_sum(
          features * weights[:, tf.newaxis, :, 0], axis=-1, keepdims=True
      )
    else:
      predictor = tf.matmul(features, weights)
    residuals = self._mean_response(predictor) - targets
    if self._shape[1] == 1:
      products = tf.reduce_mean(residuals * features, axis=1)
      gradient = products
    else:
      products = tf.matmul(features, residuals, transpose_a=True)
      products = products / tf.cast(tf.shape(features)[1], tf.float32)
      gradient = tf.reshape(products, [self.concurrency, self.num_params])
    return given - self.step.learning_rate * self._clipped(gradient) + noise

  def _mean_response(self, predictor):
    if self._model == 'logistic':
      return tf.sigmoid(predictor)
    if self._model == 'poisson':
      return tf.exp(predictor)
    if self._model == 'softmax':
      return tf.nn.softmax(predictor)
    return predictor

  def _clipped(self, gradient):
    finite = tf.reduce_all(
        tf.math.is_finite(gradient), axis=1, keepdims=True
    )
    gradient = tf.where(finite, gradient, 0.0)
    bound = self.step.clip_norm
    if self.step.clip == 'box':
      return tf.clip_by_value(gradient, -bound, bound)
    if self.step.clip == 'l1':
      norm = tf.reduce_sum(tf.abs(gradient), axis=1, keepdims=True)
    else:
      norm = tf.norm(gradient, axis=1, keepdims=True)
    return gradient * (bound / tf.maximum(norm, bound))

  def _written(self, pool, returned, replaced):
    """Returns the pool after the m returned models are written, in order."""
    if self.strategy == 'server_batch':
      return tf.reduce_mean(returned, axis=0, keepdims=True)
    if self.strategy.startswith('average'):
      for position in range(self.concurrency):
        row = replaced[position]
        mean = 0.5 * (returned[position] + tf.gather(pool, row))
        pool = self._with_row(pool, row, mean)
      return pool
    if self.concurrency == 1:
      return self._with_row(pool, replaced[0], returned[0])
    # The last one that is written over a row stays there.
    rows = tf.range(self.num_rows)[:, tf.newaxis]
    positions = tf.range(self.concurrency)[tf.newaxis]
    last = tf.reduce_max(
        tf.where(tf.equal(rows, replaced[tf.newaxis]), positions, -1), axis=1
    )
    written = tf.gather(returned, tf.maximum(last, 0))
    return tf.where(last[:, tf.newaxis] >= 0, written, pool)

  def _with_row(self, pool, row, model):
    """Returns the pool with one row overwritten; no row for -1."""
    if self.num_rows * self.num_params <= _SMALL_POOL or self.num_rows == 1:
      rows = tf.range(self.num_rows)[:, tf.newaxis]
      return tf.where(tf.equal(rows, row), model[tf.newaxis], pool)
    return tf.tensor_scatter_nd_update(pool, [[row]], model[tf.newaxis])
