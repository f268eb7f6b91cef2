# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Cohorts on Flower and NVFlare, by secret coins.

A server of Flower or NVFlare has no list of all clients. So each connected
client has one coin in each round: a hash of the client's id and the round under
one secret key. The coin does not depend on who else is connected. A client that
is not connected has rate 0 in that round, which is below the rate of the plan.
"""

from collections.abc import Sequence

from tff_dp import _checks
from tff_dp.integrations import server_cohorts
from tff_dp.participation import coins
from tff_dp.statement import builder
from tff_dp.systems.sampling import plan as plan_lib

_PURPOSE = 'sampling on another stack'


class CoinCohorts(server_cohorts.ServerCohorts):
  """Poisson sampling among connected clients. Key and cohorts are secret."""

  sentences = """
setting.adversary: anybody who sees every released model of the run, but neither
    the coins nor the cohorts; clients are such parties, and know their own
    rounds alone. The server is not: {stack} hands it the updates one by one,
    and it adds them up without noise
release.covered: the model after every round, and its evaluation on data of others
    than the clients in training; nothing about who or how many took part in a
    round
implementation.coins: one for each client and round, a keyed BLAKE2b hash of the
    client's id and the round, from one secret key of the server; a cohort from
    elsewhere is refused
implementation.dropouts: whoever is not connected, or was drawn and does not
    reply, adds nothing; a short or an empty round gets the full noise and the
    same divisor
"""

  def __init__(
      self,
      plan: plan_lib.SamplingPlan,
      *,
      schedule_seed: int,
      insecure_seed: int | None,
  ):
    """Makes the cohorts of a run that has not begun.

    Args:
      plan: Plan whose unit is the client.
      schedule_seed: Must be 0. Secret coins have no public seed.
      insecure_seed: Seed for tests only. Anybody who knows it knows the coins.
    """
    if plan.unit != 'client':
      raise _checks.ArgumentError(
          'plan.unit',
          plan.unit,
          "'client', because a server on another stack draws clients, not"
          ' examples of one holder',
      )
    plan_lib.check_no_public_seed(schedule_seed)
    self.clients_needed = plan.population
    self._rate = plan.sampling_rate
    self._key = (
        coins.random_root_key()
        if insecure_seed is None
        else coins.insecure_root_key(insecure_seed)
    )

  def select(self, round_index: int, client_ids: Sequence[str]) -> list[str]:
    if len(client_ids) > self.clients_needed:
      raise _checks.PrivacyRefusedError(
          f'{len(client_ids)} clients are connected, but the population of the'
          f' plan is {self.clients_needed}',
          why='a client with two ids has two coins, and could contribute twice'
          ' in one round',
          way_out='give every client one id that stays (on Flower, nodes with'
          ' keys), or make a plan with the whole population',
      )
    return [
        each
        for each in client_ids
        if coins.is_heads(
            coins.coin(self._key, _PURPOSE, round_index, each), self._rate
        )
    ]

  def observed(self, rounds_begun: int) -> builder.RoundsDone:
    return builder.RoundsDone(rounds_begun)

  def to_bytes(self) -> bytes:
    return self._key

  def restored(self, data: bytes) -> 'CoinCohorts':
    if len(data) != coins.KEY_BYTES:
      raise _checks.PrivacyRefusedError(
          f'the saved key of the coins has {len(data)} bytes, not'
          f' {coins.KEY_BYTES}',
          why='with another key, a repeated round would have another cohort',
          way_out='restore the checkpoint from a copy, or start a new run',
      )
    self._key = data
    return self
