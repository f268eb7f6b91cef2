# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Generated client work, as cases whose oracle is TFF's runtime.

Hypothesis draws programs (`programs` says what they are), which have one
meaning each: effects are in the order of statements, and nothing is random but
for shuffles with a seed. `recorded/generated.json` keeps some for stacks
without hypothesis and TFF's runtime.
"""

from collections.abc import Callable, Iterator
import copy
import dataclasses
import functools
import json

from tests.oracle import oracle
from tests.oracle import programs
from tests.oracle import templates

try:
  import hypothesis
  from hypothesis import strategies as st
except ImportError:  # Some stacks have recorded programs only.
  hypothesis = None

_RECORDED = oracle.RECORDED / 'generated.json'
# Programs of one run of hypothesis, which soon looks for new ones among variants
# of those that it has drawn already.
_BATCH = 12
_CARRIED = 'fdilbsFILMSB'
_RETURNED = 'fdilbsFILMSBDYT'
_TABLES = (templates.SMOOTH, templates.OTHERS)
_NUMERIC = 'fdilFILM'


@dataclasses.dataclass(frozen=True)
class Generated(oracle.Case):
  """A case with the program that it runs.

  Attributes:
    program: What JSON can hold, see `programs`.
    is_in_order: Whether the result depends on the order of clients, so that
      several workers must not share them.
  """

  program: dict = dataclasses.field(default_factory=dict, hash=False)
  is_in_order: bool = False


@functools.lru_cache(maxsize=1)
def _computation(text: str):
  # All paths of a case come one after the other, and take the same one.
  return programs.build(json.loads(text))


def from_program(program: dict, name: str = 'program') -> Generated:
  """Returns the case of a program, as JSON has it."""

  def run():
    computation = _computation(json.dumps(program))
    return oracle.flat(computation(*programs.arguments(program)))

  return Generated(
      name,
      'generated',
      run,
      program=program,
      is_in_order=programs.is_in_order(program),
  )


def recorded_cases() -> Iterator[Generated]:
  """Yields the recorded programs, for which nothing is drawn."""
  if not _RECORDED.exists():
    return
  for number, program in enumerate(json.loads(_RECORDED.read_text())):
    yield from_program(program, f'recorded_{number:03}')


def record(drawn: list[dict]) -> None:
  """Writes the programs of `recorded_cases`."""
  lines = ',\n'.join(
      json.dumps(program, separators=(',', ':')) for program in drawn
  )
  _RECORDED.write_text(f'[\n{lines}\n]\n')


def cases(num: int, seed: int) -> Iterator[Generated]:
  """Yields distinct generated cases, the same for the same seed.

  TensorFlow refuses to trace one in a hundred; these end in an error everywhere.
  """
  seen, batch = set(), 0
  while len(seen) < num:
    for program in _drawn(seed * 100_000 + batch):
      text = json.dumps(program)
      if text not in seen and len(seen) < num:
        seen.add(text)
        yield from_program(program, f'seed_{seed}_{len(seen) - 1:05}')
    batch += 1


def _drawn(seed: int) -> list[dict]:
  found = []

  @hypothesis.seed(seed)
  @hypothesis.settings(
      max_examples=_BATCH,
      database=None,
      deadline=None,
      phases=[hypothesis.Phase.generate],
      suppress_health_check=list(hypothesis.HealthCheck),
  )
  @hypothesis.given(any_program())
  def collect(program):
    found.append(json.loads(json.dumps(program)))

  collect()
  return found


class _Names:
  """Draws names that no other value of a program has."""

  def __init__(self, draw: Callable):
    self.draw = draw
    self._count = 9

  def new(self, code: str) -> str:
    self._count += 1
    return f'{code}{self._count}'

  def one_of(self, items):
    return self.draw(st.sampled_from(list(items)))

  def integer(self, low: int, high: int) -> int:
    return self.draw(st.integers(low, high))

  def chance(self, percent: int) -> bool:
    # At the upper end, so that the simplest program has nothing of it.
    return self.draw(st.integers(0, 99)) >= 100 - percent

  def value(self, code: str, known: list[str]) -> str:
    """Returns a name of a code, or rarely that of a constant."""
    own = [name for name in known if name[0] == code]
    if not own or self.chance(10):
      return f'{code}_{self.integer(0, 2)}'
    return self.one_of(own[-4:])


@dataclasses.dataclass(frozen=True)
class _Place:
  """Where statements are, which decides what they may be.

  Attributes:
    variables: Those that may be read and written.
    helpers: Pairs of functions that may be called, and their results' codes.
    elements: Codes of the leaves of `data`; None where it must not be read.
    in_function: Whether there is AutoGraph, and an order of effects.
    is_smooth: Whether all must have a gradient.
    is_plain: Whether the steps of datasets are such as clients can do at once.
    depth: How many statements are around it.
  """

  variables: tuple[str, ...] = ()
  helpers: tuple = ()
  elements: str | None = None
  in_function: bool = True
  is_smooth: bool = False
  is_plain: bool = False
  depth: int = 0

  def inner(self, **changes) -> '_Place':
    return dataclasses.replace(self, depth=self.depth + 1, **changes)


def _block(names: _Names, known: list[str], place: _Place, size: int) -> list:
  """Returns statements; what they define goes to `known`."""
  statements = []
  for _ in range(size):
    kinds = ['let'] * 6
    if place.variables:
      kinds += ['read', 'write', 'write']
    if place.depth < 3:
      kinds += ['cond', 'loop']
      if place.elements is not None:
        kinds += ['data', 'data']
      if not place.is_smooth:
        kinds += ['tape']
    if place.helpers:
      kinds += ['call', 'call']
    statements.append(_MAKERS[names.one_of(kinds)](names, known, place))
  return statements


def _let(names: _Names, known: list[str], place: _Place) -> list:
  there = {name[0] for name in known}
  items = [
      (code, template, codes)
      for tables in _TABLES[: 1 if place.is_smooth else 2]
      for code, templates in tables.items()
      for template, codes in templates
      if codes[0] != '#'
  ]
  found = [item for item in items if there & set(item[2])] or items
  # Codes first, as there are more templates of some.
  code = names.one_of(sorted({item[0] for item in found}))
  _, template, codes = names.one_of([f for f in found if f[0] == code])
  arguments = [names.value(part, known) for part in codes]
  known.append(names.new(code))
  return ['let', known[-1], template, arguments]


def _read(names, known, place):
  variable = names.one_of(place.variables)
  known.append(names.new(variable[1]))
  return ['read', known[-1], variable]


def _write(names, known, place):
  variable = names.one_of(place.variables)
  code = variable[1]
  methods = ['assign']
  if code in _NUMERIC:
    methods += ['assign_add', 'assign_add', 'assign_sub']
  if code in 'FI':
    methods += ['row', 'scatter']
  method = names.one_of(methods)
  if method in ('row', 'scatter'):
    code = {'F': 'f', 'I': 'i'}[code]
  return ['write', variable, method, names.value(code, known)]


def _cond(names, known, place):
  inner = place.inner()
  predicate = names.value('b', known)
  blocks, ends = [], []
  for _ in range(2):
    own = list(known)
    blocks.append(_block(names, own, inner, names.integer(0, 2)))
    ends.append(own)
  codes = [names.one_of(_CARRIED) for _ in range(names.integer(1, 2))]
  if place.is_smooth:
    codes = [names.one_of('fF')]
  outs = [
      [names.new(code), names.value(code, ends[0]), names.value(code, ends[1])]
      for code in codes
  ]
  known += [out[0] for out in outs]
  style = names.one_of(['cond', 'if'] if place.in_function else ['cond'])
  return ['cond', style, predicate, *blocks, outs]


def _carried(names, known, place, *, least: int = 0):
  codes = 'fF' if place.is_smooth else _CARRIED
  there = [name[0] for name in known if name[0] in codes] or ['f']
  chosen = [
      names.one_of(there if names.chance(60) else codes)
      for _ in range(names.integer(least, 2))
  ]
  return [[names.new(code), names.value(code, known)] for code in chosen]


def _loop(names, known, place):
  carried = _carried(names, known, place, least=1)
  index = names.new('i')
  own = [*known, index, *(name for name, _ in carried)]
  styles = ['while_loop']
  if place.in_function and not place.is_smooth:
    styles += ['range', 'while']
  style = names.one_of(styles)
  count = names.integer(0, 3)
  if names.chance(40):
    count = names.value('i', known)
  # TensorFlow finds the loops of an iterator only at the top.
  inner = place.inner(elements=None)
  block = _block(names, own, inner, names.integer(1, 3))
  carried = [[*pair, names.value(pair[0][0], own)] for pair in carried]
  stop = ''
  if style in ('range', 'while') and names.chance(25):
    stop = names.value('b', own)
  known += [name for name, _, _ in carried]
  return ['loop', style, count, index, block, carried, stop]


def _chain(names, known, codes: str, is_plain: bool) -> tuple[list, str]:
  """Returns steps that make a dataset of another, and its leaves' codes."""
  steps = []
  for _ in range(names.integer(0, 3) if names.chance(60) else 0):
    kinds = [
        'map', 'map', 'filter', 'repeat', 'take', 'skip', 'shuffle', 'prefetch',
        'cache', 'enumerate', 'zip', 'concatenate', 'twice', 'parallel',
        'take_while', 'shard',
    ]  # pyformat: disable
    if is_plain:
      kinds = ['map', 'map', 'repeat', 'take', 'prefetch', 'cache', 'parallel']
    if set(codes) <= set(programs.BATCHED):
      kinds += ['batch', 'batch', *([] if is_plain else ['window'])]
    kind = names.one_of(kinds)
    step = [kind]
    if kind in ('map', 'filter'):
      leaves = [names.new(code) for code in codes]
      own = [*known, *leaves]
      block = [
          _let(names, own, _Place()) for _ in range(names.integer(0, 2))
      ]
      if kind == 'map':
        wanted = own[len(known) :] or own
        results = [
            names.one_of(wanted[-4:]) for _ in range(names.integer(1, 3))
        ]
        codes = ''.join(name[0] for name in results)
      else:
        results = [names.value('b', own)]
        if results[0].startswith('b_'):
          block.append(_let_of('b', names, own))
          results = [own[-1]]
      step += [leaves, block, results]
    elif kind in ('repeat', 'take', 'skip', 'take_while', 'prefetch'):
      step.append(names.integer(0, 2) if kind != 'prefetch' else 1)
    elif kind == 'shuffle':
      step += [names.integer(1, 5), names.integer(1, 3)]
    elif kind == 'batch':
      step += [names.integer(1, 3), names.chance(25)]
      codes = ''.join(programs.BATCHED[code] for code in codes)
    elif kind == 'window':
      step += [names.integer(1, 3), names.integer(1, 2)]
    elif kind == 'shard':
      step += [2, names.integer(0, 1)]
    elif kind in ('enumerate', 'zip'):
      codes += 'i'
    steps.append(step)
  return steps, codes


def _let_of(code: str, names: _Names, known: list[str]) -> list:
  template, codes = names.one_of([
      item
      for tables in _TABLES
      for item in tables.get(code, [])
      if item[1][0] != '#'
  ])
  arguments = [names.value(part, known) for part in codes]
  known.append(names.new(code))
  return ['let', known[-1], template, arguments]


def _data(names, known, place):
  chain, codes = _chain(names, known, place.elements, place.is_plain)
  carried = _carried(names, known, place, least=1)
  leaves = [names.new(code) for code in codes]
  own = [*known, *(name for name, _ in carried), *leaves]
  styles = ['reduce', 'reduce']
  if place.in_function and not place.is_smooth:
    styles += ['for', 'for', 'optional', 'single', 'next']
  style = names.one_of(styles)
  if style in ('single', 'next') and chain:
    # They need to know how many elements there are.
    style = 'for'
  inner = place.inner(elements=None)
  block = _block(names, own, inner, names.integer(1, 4))
  carried = [[*pair, names.value(pair[0][0], own)] for pair in carried]
  stop = names.value('b', own) if style == 'for' and names.chance(15) else ''
  known += [name for name, _, _ in carried]
  return ['data', style, chain, leaves, block, carried, stop]


def _call(names, known, place):
  helper, parameters, results = names.one_of(place.helpers)
  outs = [names.new(code) for code in results]
  arguments = [names.value(code, known) for code in parameters]
  known += outs
  return ['call', helper, arguments, outs]


def _tape(names, known, place):
  watched = [n for n in known if n[0] in 'fFM'][-3:]
  watched = [names.one_of(watched)] if watched else ['F_1']
  variables = [v for v in place.variables if v[1] in 'fFM'][:1]
  own = list(known)
  # Writes and data have no place in a gradient.
  inner = place.inner(
      is_smooth=True, variables=(), helpers=(), elements=None
  )
  block = [
      ['read', names.new(variable[1]), variable] for variable in variables
  ]
  own += [statement[1] for statement in block]
  block += _block(names, own, inner, names.integer(1, 3))
  targets = [name for name in own[len(known) :] if name[0] in 'fFM']
  target = (targets or ['f_0'])[-1]
  outs = [names.new(programs.code_of(n)) for n in [*watched, *variables]]
  known += outs
  return ['tape', watched, variables, block, target, outs]


_MAKERS = {
    'let': _let,
    'read': _read,
    'write': _write,
    'cond': _cond,
    'loop': _loop,
    'data': _data,
    'call': _call,
    'tape': _tape,
}
_INITIAL = {
    'F': ['tf.ones([3])', 'tf.range(3.0) * 2.0', 'np.float32([1, 2, 3])'],
    'M': ['tf.zeros([2, 3])', 'tf.eye(2, 3) * 4.0'],
    'I': ['tf.range(3)', '[4, 5, 6]'],
}


def _work(names: _Names, inputs, origins, elements, *, is_plain: bool) -> dict:
  """Draws what clients do.

  Args:
    names: Draws.
    inputs: Names of what they are given, but for their data.
    origins: Where that comes from.
    elements: Structure and codes of their data, or None.
    is_plain: Whether it is a function of what they have, in few statements.
  """
  in_function = names.chance(70)
  variables, helpers, pairs = [], [], []
  if in_function and not is_plain:
    for number in range(names.integer(0, 3)):
      code = names.one_of('fFFiIMdlbsL')
      initial = names.one_of([
          *_INITIAL.get(code, []),
          *(programs.constant(f'{code}_{k}') for k in range(3)),
      ])
      variables.append([f'v{code}{number}', initial])
    for number in range(names.integer(0, 2) if names.chance(50) else 0):
      codes = [names.one_of('fFiMs') for _ in range(names.integer(1, 2))]
      parameters = [names.new(code) for code in codes]
      own = list(parameters)
      place = _Place(tuple(v for v, _ in variables), tuple(pairs), depth=1)
      block = _block(names, own, place, names.integer(1, 4))
      returned = [n for n in own if n[0] in _CARRIED]
      results = [
          names.one_of(returned[-3:]) for _ in range(names.integer(1, 2))
      ]
      helpers.append([f'helper_{number}', parameters, block, results])
      pairs.append((f'helper_{number}', codes, [n[0] for n in results]))
  known = list(inputs)
  before = [
      _let(names, known, _Place())
      for _ in range(names.integer(0, 2) if known else 0)
  ]
  arguments = [name for name in known if names.chance(60)]
  place = _Place(
      tuple(v for v, _ in variables),
      tuple(pairs),
      elements=elements[1] if elements else None,
      in_function=in_function,
      is_plain=is_plain,
  )
  own = list(known)
  body = []
  # Who has data should mostly look at it.
  if elements and names.chance(80):
    body.append(_data(names, own, place))
  body += _block(names, own, place, names.integer(0 if body else 1, 6))
  if is_plain:
    body = body[:3]
    own = [n for n in own if n in known or n in _defined(body)]
  for variable, _ in variables:
    own.append(names.new(variable[1]))
    body.append(['read', own[-1], variable])
  returned = [n for n in own if n[0] in _RETURNED] or ['f_0']
  if is_plain:
    returned = [n for n in returned if n[0] in _NUMERIC] or returned
  results = list(dict.fromkeys(
      names.one_of(returned[-6:]) for _ in range(names.integer(1, 4))
  ))
  kinds = ['tuple', 'dict', 'nested']
  return {
      'inputs': list(inputs),
      'origins': list(origins),
      'elements': elements,
      'variables': variables,
      'helpers': helpers,
      'before': before,
      'in_function': in_function,
      'arguments': arguments,
      'hands_on_data': names.chance(60),
      'body': body,
      'results': results,
      'result_kind': names.one_of(kinds),
      'kept': 0,
  }


def _defined(block: list) -> set[str]:
  """Returns what the statements of a block define for those after it."""
  found = set()
  for kind, *rest in block:
    if kind in ('let', 'read'):
      found.add(rest[0])
    elif kind == 'cond':
      found.update(out[0] for out in rest[-1])
    elif kind in ('loop', 'data'):
      found.update(carried[0] for carried in rest[-2])
    elif kind in ('call', 'tape'):
      found.update(rest[-1])
  return found


def _aggregation(names: _Names, code: str, *, is_plain: bool) -> str:
  kinds = [k for k, v in programs.AGGREGATES.items() if code in v[0]]
  if code in _NUMERIC:
    kinds += ['sum'] * 6
    if code not in 'dlL':
      kinds += ['min', 'max']
    if is_plain and names.chance(85):
      return 'sum'
  if code in 'fFM':
    kinds += ['mean'] * 4
  kinds = [k for k in kinds if not (k == 'mean' and code not in 'fFM')]
  if not kinds or names.chance(4):
    return 'keep'
  return names.one_of(kinds)


def any_program():
  """Returns the strategy of programs."""
  return st.composite(_program)()


def _program(draw) -> dict:
  names = _Names(draw)
  is_plain = names.chance(50)
  server = [names.new(names.one_of('fFiIMsb')) for _ in range(names.integer(0, 2))]
  own = [names.new(names.one_of('fFisI'))] if names.chance(15) else []
  elements = None
  if names.chance(94) or not (server or own):
    if names.chance(30):
      codes = names.one_of(['X', 'XY', 'DY', 'T', 'YX', 'D'])
    else:
      codes = names.one_of(
          ['f', 'i', 'F', 's', 'fi', 'Fi', 'if', 'sf', 'Fs', 'fFi', 'M', 'b',
           'lf', 'I', 'Fb', 'd']
      )  # pyformat: disable
    kinds = ['dict', 'tuple', 'nested'] if len(codes) > 1 else ['alone', 'dict']
    elements = [names.one_of(kinds), codes]
  number = names.integer(3, 8)
  sizes = [names.integer(0, 5) for _ in range(number)]
  if names.chance(60):
    sizes = [names.integer(1, 4)] * number
  steps = []
  form = names.one_of(['list', 'slices', 'slices', 'steps'])
  if form == 'steps':
    for _ in range(names.integer(1, 3)):
      step = names.one_of(['repeat', 'shuffle', 'map', 'prefetch', 'take',
                           'cache', 'skip'])
      steps.append({
          'repeat': ['repeat', 2],
          'shuffle': ['shuffle', 4, 5],
          'take': ['take', 3],
          'skip': ['skip', 1],
          'prefetch': ['prefetch', 2],
      }.get(step, [step]))
  clients = {
      'sizes': sizes,
      'seed': names.integer(0, 99),
      'form': form,
      'batch_size': names.integer(1, 3),
      'steps': steps,
  }
  origins = ['server'] * len(server) + ['own'] * len(own)
  works = [
      _work(names, [*server, *own], origins, elements, is_plain=is_plain)
  ]
  first = works[0]
  aggregations = []
  for index, name in enumerate(first['results']):
    kind = _aggregation(names, name[0], is_plain=is_plain)
    aggregations.append([0, kind, index])
  sums = [a for a in aggregations if a[1] == 'sum']
  if sums and names.chance(15):
    chosen = names.one_of(range(len(aggregations)))
    if aggregations[chosen][1] == 'sum':
      name = first['results'][aggregations[chosen][2]]
      inputs, origins = [names.new(name[0])], [str(chosen)]
      if names.chance(40):
        kept = names.integer(0, len(first['results']) - 1)
        inputs.append(names.new(first['results'][kept][0]))
        origins.append('kept')
      second = _work(
          names, inputs, origins, elements, is_plain=True
      )
      if 'kept' in origins:
        second['kept'] = kept
      works.append(second)
      for index, name in enumerate(second['results']):
        kind = _aggregation(names, name[0], is_plain=True)
        aggregations.append([1, kind, index])
  return {
      'server': server,
      'own': own,
      'elements': elements,
      'clients': clients,
      'works': works,
      'aggregations': aggregations,
  }


def shrunk(
    case: Generated,
    fails: Callable[[Generated], bool],
    *,
    limit: int = 300,
) -> Generated:
  """Returns a smaller case that fails, too.

  Args:
    case: A case that fails.
    fails: Says so of any other.
    limit: How many are tried, at most.
  """
  program, tries = case.program, 0
  grows_smaller = True
  while grows_smaller:
    grows_smaller = False
    for candidate in _smaller(program):
      tries += 1
      if tries > limit:
        return from_program(program, case.name)
      if fails(from_program(candidate, case.name)):
        program, grows_smaller = candidate, True
        break
  return from_program(program, case.name)


def _smaller(program: dict) -> Iterator[dict]:
  """Yields programs with a little less than another."""
  if len(program['works']) > 1 and all(
      origin != 'x' for origin in program['works'][1]['origins']
  ):
    other = copy.deepcopy(program)
    del other['works'][1]
    other['aggregations'] = [a for a in other['aggregations'] if a[0] == 0]
    yield other
  is_used = {origin for w in program['works'] for origin in w['origins']}
  if not any(origin.isdigit() for origin in is_used):
    for index in range(len(program['aggregations'])):
      if len(program['aggregations']) > 1:
        other = copy.deepcopy(program)
        del other['aggregations'][index]
        yield other
  # Halves of blocks first, then single statements.
  num_blocks = len(list(programs.blocks(program)))
  for place in range(num_blocks):
    size = len(list(programs.blocks(program))[place])
    ranges = [(k, k + 1) for k in range(size)]
    if size > 2:
      ranges = [(0, size // 2), (size // 2, size), *ranges]
    for start, end in ranges:
      other = copy.deepcopy(program)
      del list(programs.blocks(other))[place][start:end]
      yield other
  sizes = program['clients']['sizes']
  for index in range(len(sizes)):
    if len(sizes) > 1:
      other = copy.deepcopy(program)
      del other['clients']['sizes'][index]
      yield other
    if sizes[index] > 1:
      other = copy.deepcopy(program)
      other['clients']['sizes'][index] = 1
      yield other
  for index, work in enumerate(program['works']):
    for key in ('variables', 'helpers', 'before'):
      for place in range(len(work[key])):
        other = copy.deepcopy(program)
        del other['works'][index][key][place]
        yield other
    if work['in_function'] and not work['variables']:
      other = copy.deepcopy(program)
      other['works'][index]['in_function'] = False
      yield other
  if program['clients']['form'] != 'list':
    other = copy.deepcopy(program)
    other['clients']['form'] = 'list'
    yield other


def operations() -> Iterator[Generated]:
  """Yields a case for each template, and for the gradients of smooth ones.

  Every client reduces its rows with it, so that clients can do it at once.
  """
  for tables in _TABLES:
    for code, listed in tables.items():
      for number, (template, codes) in enumerate(listed):
        if codes[0] == '#':
          continue
        kind = 'smooth' if tables is templates.SMOOTH else 'other'
        name = f'operation_{kind}_{code}_{number:02}'
        yield from_program(_operation(code, template, codes), name)
        if tables is templates.SMOOTH and set(codes) & set('fFM'):
          program = _operation(code, template, codes, has_tape=True)
          yield from_program(program, f'{name}_gradient')


def _operation(code, template, codes, has_tape: bool = False) -> dict:
  """Returns the program that reduces rows with one template."""
  leaves = [f'{part}{10 + index}' for index, part in enumerate(codes)]
  out = f'{code}20'
  block = [['let', out, template, leaves]]
  if has_tape:
    watched = [leaf for leaf in leaves if leaf[0] in 'fFM']
    outs = [f'{leaf[0]}{30 + index}' for index, leaf in enumerate(watched)]
    square = ['let', f'{code}21', '{0} * {0}', [out]]
    block = [['tape', watched, [], [*block, square], f'{code}21', outs]]
    code, out = outs[0][0], outs[0]
  if code in _NUMERIC:
    block.append(['let', f'{code}41', '{0} + {1}', [f'{code}40', out]])
    out = f'{code}41'
  if code in 'DYTX':
    # Such as change their shape are no state of a reduction.
    dtype, kept = ('tf.float32', 'f') if code in 'DX' else ('tf.int32', 'i')
    made = "tf.reduce_sum({1}) * 3 + tf.cast(tf.size({1}), " + dtype + ')'
    if code == 'T':
      made = "tf.reduce_sum(tf.strings.length({1})) + tf.size({1})"
    block.append(['let', f'{kept}42', '{0} + ' + made, [f'{kept}40', out]])
    code, out = kept, f'{kept}42'
  carried = [[f'{code}40', f'{code}_1', out]]
  is_batched = bool(set(codes) & set('DYTX'))
  chain, parts = [], list(codes)
  if is_batched:
    # Rows are batched, and what is not of a batch is a constant of the map.
    parts = [programs.ROWS.get(part, part) for part in codes]
    batched = [part in programs.ROWS for part in codes]
    if not all(batched):
      block[0] = copy.deepcopy(block[0])
      names = [
          leaf if is_leaf else f'{leaf[0]}_{index}'
          for index, (leaf, is_leaf) in enumerate(zip(leaves, batched))
      ]
      _rename(block[0], dict(zip(leaves, names)))
      kept = [k for k, is_leaf in enumerate(batched) if is_leaf]
      parts = [parts[k] for k in kept]
      leaves = [leaves[k] for k in kept]
    chain = [['batch', 2, False]]
  kind = 'tuple' if len(parts) > 1 else 'alone'
  return {
      'server': [],
      'own': [],
      'elements': [kind, ''.join(parts)],
      'clients': {
          'sizes': [3] * 5,
          'seed': 3,
          'form': 'list',
          'batch_size': 1,
          'steps': [],
      },
      'works': [{
          'inputs': [],
          'origins': [],
          'elements': [kind, ''.join(parts)],
          'variables': [],
          'helpers': [],
          'before': [],
          'in_function': False,
          'arguments': [],
          'hands_on_data': False,
          'body': [['data', 'reduce', chain, leaves, block, carried, '']],
          'results': [f'{code}40'],
          'result_kind': 'tuple',
          'kept': 0,
      }],
      'aggregations': [
          [0, 'sum' if code in _NUMERIC else 'counted', 0]
          if code in 'fdilFILMbB' and code not in 'bB'
          else [0, {'b': 'any', 'B': 'all', 's': 'longest'}.get(
              code, 'longest'), 0]
      ],
  }


def _rename(value, names: dict[str, str]) -> None:
  """Renames values in a statement, in place."""
  for index, part in enumerate(value):
    if isinstance(part, list):
      _rename(part, names)
    elif part in names:
      value[index] = names[part]
