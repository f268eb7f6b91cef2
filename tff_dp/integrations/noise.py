# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The noise of one run, round after round, as pure NumPy functions.

The noise has the same distribution as in `aggregators.noise_state`, but other
draws, and needs no TensorFlow. For each vector, keyed BLAKE2b derives a key for
NumPy's Philox. It derives the key from the secret root key, the purpose, the
tree, the node and the digest of the round that first drew the vector. A digest
covers all sums of the run up to its round. So a round that is repeated on equal
sums repeats its noise. If the sums differ, the noise differs from then on.
"""

import hashlib
from typing import NamedTuple

import numpy as np
from scipy import special

from tff_dp import _checks
from tff_dp import draws
from tff_dp.mechanisms import mechanism as mechanism_lib
from tff_dp.participation import coins

# Change this tag with the derivation of keys or with the draws: both change
# every stream.
_VERSION_TAG = 'tff_dp numpy streams 2'
VALUE_DOMAIN = 'value'
QUANTILE_DOMAIN = 'quantile'
_DIGEST_DOMAIN = 'digest'


class NoiseState(NamedTuple):
  """State of a run's noise after a round. All of it is secret.

  Attributes:
    key: The root key, 128 bits.
    tree_id: Number of trees that were begun before this one.
    round_in_tree: Number of rounds done in the tree.
    digests: Digests of the last n rounds, 16 bytes each. The noise of these
      rounds can be drawn again. Round r of a tree writes entry (r - 1) mod n.
    buffers: Memory of the mechanism, float64 vectors.
  """

  key: bytes
  tree_id: int
  round_in_tree: int
  digests: tuple[bytes, ...]
  buffers: tuple[np.ndarray, ...]


def initialize(
    mechanism: mechanism_lib.Mechanism, num_params: int, *, key: bytes
) -> NoiseState:
  """Returns the state before round 1.

  Args:
    mechanism: Mechanism that defines the noise of each round.
    num_params: Length of the noise.
    key: Root key: `coins.random_root_key()`, or in tests
      `coins.insecure_root_key(seed)`.

  Raises:
    ArgumentError: If the key has another length or is all zeros.
  """
  if len(key) != coins.KEY_BYTES or not any(key):
    raise _checks.ArgumentError(
        'key', f'{len(key)} bytes', f'{coins.KEY_BYTES} bytes, not all zeros'
    )
  return NoiseState(
      key=key,
      tree_id=0,
      round_in_tree=0,
      digests=(bytes(coins.KEY_BYTES),) * mechanism.rounds_drawn,
      buffers=tuple(mechanism.initialize(np.zeros(num_params))),
  )


def next_noise(
    mechanism: mechanism_lib.Mechanism,
    state: NoiseState,
    total: np.ndarray,
    *,
    num_params: int | None = None,
    domain: str = VALUE_DOMAIN,
) -> tuple[np.ndarray, NoiseState]:
  """Returns (noise, state) of the round that begins, for draws of variance 1.

  Some mechanisms complete a tree with virtual rounds, which have noise and no
  data. The first round of the next tree then adds their noise, too.

  Args:
    mechanism: Mechanism that defines the noise of each round.
    state: State after the previous round.
    total: All sums of the round, which the noise protects. The noise is drawn
      from the key and a digest of these sums. So they must not depend on the
      order of the clients: a round that is repeated would draw other noise.
    num_params: Length of the noise. Default: the length of `total`.
    domain: Name of the stream, such as 'value'. Two streams of one key have
      independent noise.
  """
  digest = coins.subkey(
      state.key,
      _VERSION_TAG,
      _DIGEST_DOMAIN,
      state.digests[(state.round_in_tree - 1) % len(state.digests)],
      total.tobytes(),
  )
  num_params = len(total) if num_params is None else num_params
  opened, left_behind = state, 0.0
  if state.round_in_tree == mechanism.restart_every:
    last = state
    for _ in range(mechanism.virtual_rounds):
      noise, last = _step(mechanism, last, digest, num_params, domain)
      left_behind = left_behind + noise
    opened = state._replace(tree_id=state.tree_id + 1, round_in_tree=0)
    if not mechanism.overwrites_buffers:
      opened = opened._replace(
          buffers=tuple(mechanism.initialize(np.zeros(num_params)))
      )
  noise, opened = _step(mechanism, opened, digest, num_params, domain)
  return noise + left_behind, opened


def probe() -> str:
  """Returns a hash of draws from a fixed key.

  If two machines have different hashes, for example because their versions of
  NumPy differ, then the same key gives them different draws.
  """
  key = coins.subkey(b'\1' * coins.KEY_BYTES, _VERSION_TAG)
  drawn = _normals(key, 1000).astype('<f8').tobytes()
  return hashlib.sha256(drawn).hexdigest()[:16]


def _step(mechanism, state, digest, num_params, domain):
  """Returns (noise, state) of the next round of the same tree."""
  at_round = state.round_in_tree + 1
  digests = list(state.digests)
  digests[(at_round - 1) % len(digests)] = digest

  def draw(level, index):
    first_drawn = mechanism_lib.round_of_draw(level, index)
    return _normals(
        coins.subkey(
            state.key,
            _VERSION_TAG,
            domain,
            state.tree_id,
            int(level),
            int(index),
            digests[(first_drawn - 1) % len(digests)],
        ),
        num_params,
    )

  noise, buffers = mechanism.next_noise(
      state.buffers, at_round, mechanism_lib.numpy_operations(draw)
  )
  return noise, state._replace(
      round_in_tree=at_round, digests=tuple(digests), buffers=tuple(buffers)
  )


def _normals(key: bytes, num_params: int) -> np.ndarray:
  """Returns standard normals. For distribution and tails, see `draws`."""
  generator = np.random.Generator(
      np.random.Philox(key=int.from_bytes(key, 'little'))
  )
  found = generator.standard_normal(num_params)
  (far,) = np.nonzero(np.abs(found) > draws.NUMPY_FAR)
  words = generator.integers(
      2**draws.WORD_BITS, size=[len(far), draws.TAIL_WORDS]
  )
  uniforms = words @ draws.WORD_SCALES + 0.5 * draws.WORD_SCALES[-1]
  masses = np.log(uniforms) - draws.NUMPY_FAR_EXPONENT
  found[far] = np.copysign(special.ndtri_exp(masses), found[far])
  return found
