# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""A TFF data source of clients that decide themselves whether to take part.

    source = ProtocolSource.for_plan(plan, client_data)
    iterator = source.iterator()
    state, metrics = process.next(state, iterator.select())

`select()` takes no number, because the protocol decides how many clients come.
It returns the data of the clients who arrived in one step, or nothing if nobody
did. If the protocol hides empty steps, an empty step has one dummy client.

The content of an iterator, and the clients that it returns, are secret: whoever
knows who took part in which round undoes the amplification. The bytes of an
iterator belong into a checkpoint. No log, metric or export may hold any of it.
"""

import collections
from collections.abc import Sequence
import hashlib
import json
import operator
from typing import Any, NamedTuple, Optional

import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp import learning
from tff_dp.files import regular
from tff_dp.learning import keyed_data
from tff_dp.mechanisms import randomizers
from tff_dp.participation import coins
from tff_dp.participation import monitoring
from tff_dp.participation import protocol as protocol_lib
from tff_dp.participation import samplers
from tff_dp.plans import protocol_plan
from tff_dp.program import cohorts as cohorts_lib

_FORMAT = 'tff_dp.check_ins'
_VERSION = 1
# Stands for a dummy in the list of ids.
DUMMY_ID = 'dummy of an empty step'


class Step(NamedTuple):
  """One step of the protocol. Secret.

  Attributes:
    number: Number of the step, from 1, over all passes.
    cohort: The clients that report.
  """

  number: int
  cohort: samplers.Cohort


class ProtocolSource(cohorts_lib.Source):
  """The simulated clients of a protocol.

  In an iterator, the coins of all clients follow from one secret root key,
  which comes from the operating system. That is good enough for training, but
  real devices draw their coins independently. The arguments of the constructor
  are attributes, too.

  Attributes:
    client_ids: Ids of the population.
  """

  def __init__(
      self,
      protocol: protocol_lib.Protocol,
      clients,
      *,
      num_passes: int = 1,
      with_keys: bool = True,
      sampler: str = samplers.FAST,
      dropout_rate: Optional[float] = None,
      lost_winner: str = samplers.DUMMY_FOR_LOST,
      insecure_seed: Optional[int] = None,
  ):
    """Makes the source.

    Args:
      protocol: The protocol that decides who takes part.
      clients: A `tff.simulation.datasets.ClientData`. Only `client_ids` and
        `create_tf_dataset_for_client(client_id)` are used.
      num_passes: Number of passes: runs of the protocol with new coins.
      with_keys: Whether clients bring the secret key of their noise, as
        processes with local noise expect. If not, `select` returns datasets.
      sampler: 'fast', or 'literal', which flips every coin.
      dropout_rate: Share of the check-ins whose report is lost or late, by
        further coins of the clients. It must not be below the rate that the
        guarantee of the protocol counts on. Default: the rate that the protocol
        expects. A late report is discarded, never moved to another step.
      lost_winner: 'dummy' or 'redraw', see `samplers.Sampler`.
      insecure_seed: Seed for tests only. Whoever knows it knows all coins and
        can remove all noise of the clients.

    Raises:
      ArgumentError: If a value is not allowed, if two clients have the same id,
        or if the protocol needs more clients.
    """
    samplers.check_protocol(protocol)
    _checks.integer_at_least(1, num_passes=num_passes)
    if dropout_rate is None:
      dropout_rate = protocol.expected_loss
    if insecure_seed is not None:
      _checks.integer_at_least(0, insecure_seed=insecure_seed)
    self.protocol = protocol
    self.clients = clients
    self.client_ids = list(clients.client_ids)
    _checks.distinct_clients(client_ids=self.client_ids)
    self.num_passes = num_passes
    self.with_keys = with_keys
    self.sampler = sampler
    self.dropout_rate = float(dropout_rate)
    self.lost_winner = lost_winner
    self.insecure_seed = insecure_seed
    self._num_iterators = 0
    self._type = None
    # This raises for bad values, before a run begins.
    self.build_sampler(bytes(coins.KEY_BYTES))
    least = getattr(protocol, 'min_num_clients', 1)
    if len(self.client_ids) < least:
      raise _checks.ArgumentError(
          'min_num_clients',
          least,
          f'at most {len(self.client_ids)}, the number of clients',
      )

  @classmethod
  def for_plan(
      cls, plan: protocol_plan.ProtocolPlan, clients, **options
  ) -> 'ProtocolSource':
    """Returns the source of a plan's protocol.

    Args:
      plan: Plan with protocol, passes and randomizer.
      clients: See the constructor.
      **options: Any of `sampler`, `dropout_rate`, `lost_winner` and
        `insecure_seed`.
    """
    return cls(
        plan.protocol,
        clients,
        num_passes=plan.num_passes,
        with_keys=plan.is_local,
        **options,
    )

  @property
  def num_rounds(self) -> int:
    """Number of steps in all passes."""
    return self.num_passes * self.protocol.num_rounds

  @property
  def federated_type(self) -> tff.FederatedType:
    """The type of the data of a step."""
    if self._type is None:
      spec = self.dataset_of(self.client_ids[0]).element_spec
      examples = tff.SequenceType(tff.types.tensorflow_to_type(spec))
      member = examples
      if self.with_keys:
        member = collections.OrderedDict(
            examples=examples, key=keyed_data.KEYS_TYPE
        )
      self._type = tff.FederatedType(member, tff.CLIENTS)
    return self._type

  def iterator(self) -> 'ProtocolIterator':
    """Returns a new iterator with its own coins."""
    if self.insecure_seed is None:
      root_key = coins.random_root_key()
    else:
      root_key = coins.subkey(
          coins.insecure_root_key(self.insecure_seed), self._num_iterators
      )
    self._num_iterators += 1
    return ProtocolIterator(root_key, self.describe()).attached(self)

  def cohorts(self) -> 'ProtocolCohorts':
    """See base class."""
    return ProtocolCohorts(self)

  def restored(self, data: bytes) -> 'ProtocolIterator':
    """Returns the iterator that `to_bytes` saved, at the same position.

    Raises:
      PrivacyRefusedError: If the bytes are damaged, of another source or of
        another format, or if the saved key gives other draws here.
    """
    return ProtocolIterator.from_bytes(data).attached(self)

  def describe(self) -> dict[str, object]:
    """Returns all facts that cohorts depend on, except the key, as JSON types.
    """
    return {
        'protocol': self.protocol.describe(),
        'num_passes': self.num_passes,
        'num_clients': len(self.client_ids),
        'sampler': self.sampler,
        'dropout_rate': self.dropout_rate,
        'lost_winner': self.lost_winner,
        'is_key_insecure': self.insecure_seed is not None,
    }

  def build_sampler(self, root_key: bytes) -> samplers.Sampler:
    """Returns the sampler of a root key."""
    return samplers.build(
        self.protocol,
        kind=self.sampler,
        root_key=root_key,
        num_clients=len(self.client_ids),
        dropout_rate=self.dropout_rate,
        lost_winner=self.lost_winner,
    )

  def dataset_of(self, client_id):
    """Returns the examples of a client."""
    return self.clients.create_tf_dataset_for_client(client_id)


class ProtocolIterator(tff.program.FederatedDataSourceIterator):
  """One run through the steps of a source. Everything in it is secret.

  Attributes:
    position: Number of steps that are done.
    num_reports: Number of reports in these steps. Public only where the
      protocol says so.
  """

  def __init__(self, root_key: bytes, facts: dict[str, object]):
    """Internal. Call `ProtocolSource.iterator` instead."""
    self._root_key = root_key
    self._facts = facts
    self._source = None
    self._sampler = None
    self._draws_repeat = True
    self.position = 0
    self.num_reports = 0

  def attached(self, source: ProtocolSource) -> 'ProtocolIterator':
    """Returns the iterator with the clients of a source, at the same position.

    Raises:
      PrivacyRefusedError: If the iterator was made for another source, or if
        the saved key gives other draws here.
    """
    changed = sorted(
        name
        for name, value in source.describe().items()
        if json.loads(json.dumps(value)) != self._facts.get(name)
    )
    if changed:
      raise _checks.PrivacyRefusedError(
          f'the saved check-ins are of another source ({", ".join(changed)})',
          why='clients that have drawn their steps would draw again',
          way_out='resume with the clients, the protocol and the options that'
          ' the run began with, or start a new run',
      )
    # Coins that are new in every step do not depend on earlier steps.
    if not (self._draws_repeat or source.protocol.has_fresh_coins):
      raise _not_repeated()
    self._source = source
    self._sampler = source.build_sampler(self._root_key)
    return self

  @property
  def federated_type(self) -> tff.FederatedType:
    """The type of the data of a step."""
    return self._attached().federated_type

  def select(self, k: Optional[int] = None) -> Sequence:
    """Returns the client data of the next step.

    Args:
      k: Must be `None`: the protocol decides.

    Raises:
      ArgumentError: If `k` is not `None`.
      PrivacyRefusedError: See `advance`.
    """
    if k is not None:
      raise _checks.ArgumentError(
          'k', k, 'None: only the clients decide whether they come'
      )
    return self.data_of(self.advance())

  def advance(self) -> Step:
    """Draws and returns the next step, without reading data.

    Raises:
      PrivacyRefusedError: If all steps of all passes are done, or if the
        iterator has no clients yet.
    """
    source = self._attached()
    if self.position >= source.num_rounds:
      raise _checks.PrivacyRefusedError(
          f'step {self.position + 1} is beyond the {source.num_rounds} steps of'
          ' the protocol',
          why='clients have drawn their steps among these only',
          way_out='plan more rounds or passes from the start',
      )
    pass_index, step = divmod(self.position, source.protocol.num_rounds)
    cohort = self._sampler.cohort(pass_index, step + 1)
    number = self.position + 1
    self.position = number
    self.num_reports += cohort.num_arrived
    return Step(number, cohort)

  def data_of(self, step: Step) -> list:
    """Returns the data of the clients of a step, in the order of the cohort."""
    source, found = self._attached(), []
    for position in step.cohort.clients.tolist():
      if position == samplers.DUMMY:
        # An emptied dataset of any client has the type of the others.
        examples = source.dataset_of(source.client_ids[0])
        is_list = isinstance(examples, list)
        examples = [] if is_list else examples.take(0)
        secret = coins.subkey(self._root_key, 'dummy', step.number)
      else:
        examples = source.dataset_of(source.client_ids[position])
        secret = coins.subkey(
            coins.subkey(self._root_key, 'client', position), 'noise'
        )
      if source.with_keys:
        examples = learning.client_data(examples, randomizers.noise_key(secret))
      found.append(examples)
    return found

  def ids_of(self, step: Step) -> list:
    """Returns the ids of the clients of a step, in the order of the cohort."""
    ids = self._attached().client_ids
    return [
        DUMMY_ID if position == samplers.DUMMY else ids[position]
        for position in step.cohort.clients.tolist()
    ]

  def to_bytes(self) -> bytes:
    """Returns key, position and totals. SECRET."""
    content = {
        'format': _FORMAT,
        'version': _VERSION,
        'root_key': self._root_key.hex(),
        'facts': self._facts,
        'probe': samplers.probe(self._facts['sampler']),
        'position': self.position,
        'num_reports': self.num_reports,
    }
    body = json.dumps(content, sort_keys=True).encode()
    return hashlib.sha256(body).digest() + body

  @classmethod
  def from_bytes(cls, data: bytes) -> 'ProtocolIterator':
    """Returns the iterator without clients; see `ProtocolSource.restored`.

    Raises:
      PrivacyRefusedError: If the bytes are damaged or of another version.
    """
    try:
      return cls._from_bytes(data)
    except _checks.PrivacyRefusedError:
      raise
    except Exception as error:
      raise _checks.PrivacyRefusedError(
          f'the saved check-ins are damaged ({type(error).__name__}: {error})',
          why='who has taken part cannot be known',
          way_out='restore the checkpoint from a copy, or start a new run',
      ) from error

  @classmethod
  def _from_bytes(cls, data: bytes) -> 'ProtocolIterator':
    """Implements `from_bytes`, which reports any error but a refusal as damage.
    """
    checksum, body = data[:32], data[32:]
    if hashlib.sha256(body).digest() != checksum:
      raise ValueError('another checksum')
    content = regular.parse_json(body)
    facts = content['facts']
    if (content['format'], content['version']) != (_FORMAT, _VERSION):
      raise _not_repeated()
    root_key = bytes.fromhex(content['root_key'])
    if len(root_key) != coins.KEY_BYTES:
      raise ValueError(f'its key has {len(root_key)} bytes')
    iterator = cls(root_key, facts)
    iterator._draws_repeat = content['probe'] == samplers.probe(
        facts['sampler']
    )
    iterator.position = operator.index(content['position'])
    iterator.num_reports = operator.index(content['num_reports'])
    _checks.integer_at_least(0, position=iterator.position)
    return iterator

  def _attached(self) -> ProtocolSource:
    if self._source is None:
      raise _checks.PrivacyRefusedError(
          'an iterator from bytes is not attached to clients',
          why='bytes hold the key and the position, and no data',
          way_out='source.restored(bytes), where source is the ProtocolSource'
          ' that has the clients',
      )
    return self._source


class ProtocolCohorts(cohorts_lib.Cohorts):
  """Cohorts of clients that decide themselves whether to take part.

  The number of reports of a step is recorded, unless the protocol keeps it
  secret. If the protocol expects a rate, the realised rate is recorded, too:
  the number of reports so far, per client and step.
  """

  def __init__(self, source: ProtocolSource):
    """Makes the cohorts of a run.

    Args:
      source: Source with protocol and clients. The cohorts use one new iterator
        of it.
    """
    self.client_ids = source.client_ids
    self.why_not_chosen = 'clients decide by their own coins when they come'
    self.keeps_client_metrics = not source.protocol.occupancy_is_secret
    self.is_key_insecure = source.insecure_seed is not None
    self._source = source
    self._iterator = None

  def identity(self) -> dict[str, Any]:
    return {'check_ins': self._source.describe()}

  def begin(self, run_id: str) -> None:
    del run_id  # The write-ahead record ties the cohorts to the run.
    self._iterator = self._source.iterator()

  def restore(self, data: bytes) -> None:
    self._iterator = self._source.restored(data)

  def to_bytes(self) -> bytes:
    return self._iterator.to_bytes()

  def select(
      self, round_index: int, chosen: Sequence | None = None
  ) -> cohorts_lib.Selection:
    if chosen is not None:
      raise self._cannot_be_chosen()
    iterator = self._iterator
    _checks.integer_between(
        iterator.position + 1, iterator.position + 1, round_index=round_index
    )
    step = iterator.advance()
    released = {}
    if not self._source.protocol.occupancy_is_secret:
      released['reports'] = len(step.cohort.clients)
    rate = self._rate()
    if rate is not None:
      for end, value in zip(('', '_low', '_high'), rate, strict=True):
        released[f'check_in_rate{end}'] = value
    return cohorts_lib.Selection(
        ids=iterator.ids_of(step),
        read=lambda: iterator.data_of(step),
        released=released,
        not_covered={},
    )

  def observed(
      self, rounds_begun: int
  ) -> monitoring.Observed:
    iterator = self._iterator
    if not iterator.position:
      return monitoring.Observed(rounds_begun)
    is_secret = self._source.protocol.occupancy_is_secret
    return monitoring.Observed(
        rounds_begun,
        rounds_counted=iterator.position,
        num_reports=None if is_secret else iterator.num_reports,
        rate=self._rate(),
        warning=self.warning(),
    )

  def warning(self) -> str | None:
    rate = self._rate()
    if rate is None:
      return None
    return monitoring.warning(self._source.protocol, rate)

  def _rate(self) -> monitoring.RealisedRate | None:
    """Returns the realised rate so far.

    It is `None` before the first step, and if the protocol expects no rate.
    """
    source, iterator = self._source, self._iterator
    if not iterator.position or source.protocol.expected_rate is None:
      return None
    return monitoring.realised_rate(
        iterator.num_reports,
        num_rounds=iterator.position,
        num_clients=len(self.client_ids),
    )


def cohorts_of(
    plan: protocol_plan.ProtocolPlan, clients: Any
) -> ProtocolCohorts:
  """Returns the cohorts of a plan.

  Args:
    plan: Plan with protocol and passes.
    clients: A `ProtocolSource` of the plan, or the clients for a new one.

  Raises:
    ArgumentError: If the source is not one of the plan.
  """
  if not isinstance(clients, ProtocolSource):
    clients = ProtocolSource.for_plan(plan, clients)
  needed = (
      ('protocol', plan.protocol),
      ('num_passes', plan.num_passes),
      ('with_keys', plan.is_local),
  )
  for name, value in needed:
    if getattr(clients, name) != value:
      raise _checks.ArgumentError(
          f'clients.{name}',
          getattr(clients, name),
          f'{value!r}, the value in the plan',
      )
  return clients.cohorts()


def _not_repeated() -> _checks.PrivacyRefusedError:
  return _checks.PrivacyRefusedError(
      'the saved check-ins cannot be repeated here: another version of tff_dp'
      ' or NumPy has drawn them, and this one draws others from the same key',
      why='some clients would report twice in a pass',
      way_out='resume with the versions that the run began with; the sampler'
      " 'literal' does not depend on NumPy",
  )
