# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""How runs of silos get their cohorts: the plan says who is present."""

from collections.abc import Mapping, Sequence
import json
from typing import Any

from tff_dp import _checks
from tff_dp.aggregators import release_marks
from tff_dp.files import regular
from tff_dp.mechanisms import randomizers
from tff_dp.participation import coins
from tff_dp.program import cohorts
from tff_dp.statement import builder
from tff_dp.systems import system
from tff_dp.systems.silos import plan_base
from tff_dp.systems.silos import sum_factory
from tff_dp.systems.silos import terms as terms_lib


class SiloCohorts(cohorts.Cohorts):
  """The cohort of a round is all silos that the plan says are present.

  In the field every silo keeps a secret key of its own. Here all keys follow
  from one root key, which is in the checkpoints. So a round that is repeated
  after a crash repeats every message bit for bit, which reveals nothing more.

  A silo's data are asked for once in each process. If the position of a record
  determines its privacy loss, they are also read once, and the run stores a
  hash of the records before it computes with them. Later other records or
  another order are refused.
  """

  why_not_chosen = 'the plan says which silos take part in which round'

  def __init__(self, plan: plan_base.PlanOfSilos, clients):
    """Makes the cohorts of a run that has not begun.

    Args:
      plan: Plan with constants and absences.
      clients: A `tff.simulation.datasets.ClientData` whose ids are the names of
        the silos.
    """
    self.client_ids = list(clients.client_ids)
    _checks.distinct_clients(client_ids=self.client_ids)
    needed = {
        name
        for round_index in range(1, plan.num_rounds + 1)
        for name in plan.present(round_index)
    }
    ids = set(self.client_ids)
    missing, unknown = sorted(needed - ids), sorted(ids - set(plan.silos))
    if missing or unknown:
      raise _checks.ArgumentError(
          'clients.client_ids',
          self.client_ids,
          f'the names of the silos of the plan, {sorted(plan.silos)}. Missing:'
          f' {missing}. Unknown: {unknown}. For a silo that is always absent,'
          ' use plan.with_availability(...)',
      )
    self._plan = plan
    self._clients = clients
    self._root_key = self._data = None
    self._digests: dict[str, str] = {}

  @property
  def num_clients(self) -> None:
    """See base class. Each silo compares delta with its own records."""
    return None

  def identity(self) -> dict[str, Any]:
    return {'num_silos': len(self.client_ids)}

  def begin(self, run_id: str) -> None:
    del run_id  # The write-ahead record ties the silos to the run.
    self._root_key, self._data = coins.random_root_key(), {}
    self._digests = {}

  def restore(self, data: bytes) -> None:
    try:
      content = regular.parse_json(data)
      root_key = bytes.fromhex(content['root_key'])
      is_key = len(root_key) == coins.KEY_BYTES
    except (LookupError, TypeError, ValueError):
      is_key = False
    if not is_key:
      raise _checks.PrivacyRefusedError(
          'the key of the silos in the checkpoint is damaged',
          why='with another key a silo would have other noise for the same'
          ' data',
          way_out='restore the checkpoint from a copy, or start a new run',
      )
    # A second reading would draw anew, where a map has a random operation.
    kept = self._digests if root_key == self._root_key else {}
    self._data = {
        name: data for name, data in self._data.items() if name in kept
    }
    self._root_key = root_key

  def data_digests(self) -> dict[str, str]:
    return dict(self._digests)

  def require_data(self, digests: Mapping[str, str]) -> None:
    self._digests.update(digests)

  def to_bytes(self) -> bytes:
    return json.dumps({'root_key': self._root_key.hex()}).encode()

  def select(
      self, round_index: int, chosen: Sequence | None = None
  ) -> cohorts.Selection:
    if chosen is not None:
      raise self._cannot_be_chosen()
    names = list(self._plan.present(round_index))
    return cohorts.Selection(
        ids=names,
        read=lambda: self._read(names),
        released={'silos': len(names)},
        not_covered={},
    )

  def observed(self, rounds_begun: int) -> builder.RoundsDone:
    # The plan says which silos were present.
    return builder.RoundsDone(rounds_begun)

  def _read(self, names: Sequence[str]) -> list:
    """Returns the data that silos bring to every round."""
    new = {
        name: self._data_of(name) for name in names if name not in self._data
    }
    # Not before all silos are read: until then, nothing is computed.
    for name, (data, digest) in new.items():
      self._data[name] = data
      if digest is not None:
        self._digests[name] = digest
    return [self._data[name] for name in names]

  def _data_of(self, name: str) -> tuple[Any, str | None]:
    """Returns data and hash of a silo. The hash is `None` if none is needed."""
    terms = self._plan.terms[name]
    examples = self._clients.create_tf_dataset_for_client(name)
    digest = None
    if terms_lib.needs_order(terms):
      examples = terms_lib.read_once(examples)
      digest, num_records = terms_lib.digest_of_records(examples)
      if self._digests.get(name, digest) != digest:
        raise _checks.PrivacyRefusedError(
            f'silo {name!r} has other records than before, or another order',
            why='every round takes the next block, so a record that moves could'
            ' be in several blocks, and the accounting counts one',
            way_out='bring the same records in the same order, or start a new'
            ' run; if they come from random operations, as in the function of a'
            ' map(), draw once, and store the records',
        )
      if num_records not in (None, terms.num_records):
        # The silo's own graph fails and sends nothing, so its records may be
        # corrected.
        digest = None
    secret = coins.subkey(self._root_key, 'silo', name)
    return (
        terms_lib.silo_data(terms, examples, randomizers.noise_key(secret)),
        digest,
    )


class _Silos(system.Training):
  """Every silo adds the noise to its own message."""

  presence_is_public = True
  why_never_without_privacy = (
      'silos bring their constants with their records, and only the plan of the'
      ' process has these constants',
      'build it with noise_stddev=0, or build_noisy_mb_sgd in the place of'
      ' secure sums, and leave out plan=; the statement says NO PRIVACY',
  )

  def cohorts(self, plan, clients, *, schedule_seed):
    cohorts.check_client_data(clients)
    system.no_seed(schedule_seed)
    return SiloCohorts(plan, clients)

  def release(self, plan):
    return release_marks.Release.of(plan.release_facts)

  def noise(self, plan):
    return system.Noise(
        not_measured='a silo draws noise and records from the same key'
    )

  def made_data(self, plan, member, make):
    return _made_data(self._silos(plan)[: make.num_clients], member, make)

  def _silos(self, plan) -> list:
    """Returns the terms of all silos, the smallest silo first."""
    return sorted(plan.terms.values(), key=lambda terms: terms.num_records)


class _SecureSums(_Silos):
  """Each silo adds a share of the noise of a sum."""

  def release(self, plan):
    return sum_factory.release_of(plan.release_facts)

  def noise(self, plan):
    return system.Noise(not_measured="a silo's message is a share of noise")

  def made_data(self, plan, member, make):
    return _made_data(self._silos(plan), member, make)


def _made_data(silos, member, make) -> list:
  """Returns data of silos, each with as many records as its terms say."""
  return [
      terms_lib.silo_data(
          terms,
          [make(member.examples.element, size=terms.num_records)],
          make.key(2),
      )
      for terms in silos
  ]


SILOS = _Silos()
SECURE_SUMS = _SecureSums()
