# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Coins of clients: a keyed hash of the protocol and the time.

    coin = PRF(client key, purpose, protocol, time)

PRF is keyed BLAKE2b with 128 bits of output. A client needs no help for its
coins, and nobody without its key can predict them. In a simulation the keys of
all clients are derived from one root key. The coins are then only as secret as
that key, unlike on independent devices.
"""

import hashlib
import math
import os

import numpy as np

from tff_dp import _checks

KEY_BYTES = 16
_RANGE = 2**128


def random_root_key() -> bytes:
  """Returns 128 bits of operating-system entropy."""
  return os.urandom(KEY_BYTES)


def insecure_root_key(seed: int) -> bytes:
  """Returns a root key made from a seed. Who knows the seed knows all coins.

  Without secret coins there is no amplification, so a run with this key
  guarantees nothing.
  """
  _checks.integer_at_least(0, insecure_seed=seed)
  return _digest(b'tff_dp insecure seed', str(seed).encode())


def subkey(key: bytes, *labels: bytes | str | int) -> bytes:
  """Returns a key of 128 bits that is derived from another key and labels.

  Different sequences of labels give independent keys, because each label is
  hashed with its type and length.
  """
  return _digest(key, *map(_encoded, labels))


def coin(key: bytes, *labels: bytes | str | int) -> int:
  """Returns an integer from a key and labels, uniform in [0, 2^128)."""
  return int.from_bytes(subkey(key, *labels), 'little')


def is_heads(value: int, probability: float) -> bool:
  """Whether a coin shows heads, if heads have the given probability.

  Exact for a probability of 0 or at least 2^-75, because 2^128 times such a
  float is an integer. Otherwise the error of the probability is below 2^-128.

  Args:
    value: Result of `coin`.
    probability: Probability of heads, in [0, 1].
  """
  return value < math.ldexp(float(probability), 128)


def draw(value: int, num_choices: int) -> int:
  """Returns a choice from 0 to num_choices - 1, made by a coin.

  The choice is uniform. The relative error of each probability is below 2^-96.

  Args:
    value: Result of `coin`.
    num_choices: Number of choices, below 2^32.
  """
  return value * num_choices // _RANGE


def generator(key: bytes, *labels: bytes | str | int) -> np.random.Generator:
  """Returns NumPy's generator seeded with 128 bits, for arrays of draws.

  The generator is not cryptographic, and another version of NumPy may draw
  other numbers from the same key: see `samplers.probe`.
  """
  seed = coin(key, *labels)
  return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))


def _encoded(label: bytes | str | int) -> bytes:
  if isinstance(label, str):
    return b's' + label.encode()
  if isinstance(label, bytes):
    return b'b' + label
  return b'i%d' % label


def _digest(key: bytes, *parts: bytes) -> bytes:
  state = hashlib.blake2b(key=key, digest_size=KEY_BYTES)
  for part in parts:
    state.update(len(part).to_bytes(8, 'little'))
    state.update(part)
  return state.digest()
