# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Programs of client work as plain data, and the Python that they stand for.

A program is what JSON can hold. Its values have names such as `F12`, whose
first letter is a code for dtype and shape (`CODES`); variables are `vF0`. A name
that nothing defines stands for a constant of its code, so any statement can be
taken out of a program and the rest is still one. Statements are lists:

    ['let', name, template, names]
    ['read', name, variable]
    ['write', variable, method, name]
    ['cond', style, predicate, block, block, [[name, then, else], ...]]
    ['loop', style, count, name of the index, block, carried, stop]
    ['data', style, chain, names of the leaves, block, carried, stop]
    ['call', helper, names, [name, ...]]
    ['tape', watched names, variables, block, target, [name, ...]]

where carried values are lists of [name, its start, its next value], and the name
of a stop is a condition that ends the loop, or ''. All effects are in a
`tf.function`, where the order of statements is the order of effects.
"""

from collections.abc import Callable, Iterable, Iterator
import collections
import contextlib
import itertools
import linecache
import sys
import types

import numpy as np
import tensorflow as tf

# Code -> dtype, shape, and three constants.
CODES = {
    'f': (np.float32, [], ['0.5', '-1.0', '2.0']),
    'd': (np.float64, [], ['0.25', '3.0', '-1.5']),
    'i': (np.int32, [], ['2', '0', '-1']),
    'l': (np.int64, [], ['3', '1', '-2']),
    'b': (np.bool_, [], ['True', 'False', 'True']),
    's': (np.str_, [], ["'ab'", "''", "'c-d'"]),
    'F': (np.float32, [3], ['[1.0, -2.0, 0.5]', '[0.0] * 3', '[2.0] * 3']),
    'I': (np.int32, [3], ['[0, 2, 1]', '[-1, 0, 3]', '[1, 1, 1]']),
    'L': (np.int64, [3], ['[0, 2, 1]', '[-1, 0, 3]', '[1, 1, 1]']),
    'B': (
        np.bool_,
        [3],
        ['[True, False, True]', '[False] * 3', '[False, True, True]'],
    ),
    'S': (np.str_, [2], ["['a', 'bc']", "['', 'd']", "['ab', 'ab']"]),
    'M': (
        np.float32,
        [2, 3],
        [
            '[[1.0, 0.0, -1.0], [0.5, 2.0, 0.0]]',
            '[[0.0] * 3] * 2',
            '[[2.0] * 3] * 2',
        ],
    ),
    'D': (np.float32, [None], ['[1.0, -1.0]', '[0.5]', '[2.0, 0.0, 1.0]']),
    'Y': (np.int32, [None], ['[1, 0]', '[2]', '[0, 1, 1]']),
    'T': (np.str_, [None], ["['a']", "['b', 'cd']", "['', 'a']"]),
    'X': (
        np.float32,
        [None, 3],
        [
            '[[1.0, 0.0, -1.0]]',
            '[[0.5, 2.0, 0.0]] * 2',
            '[[2.0] * 3, [1.0, -1.0, 0.0]]',
        ],
    ),
}
BATCHED = {'f': 'D', 'i': 'Y', 's': 'T', 'F': 'X'}
ROWS = {batched: row for row, batched in BATCHED.items()}
_WORDS = ['a', 'b', 'ab', 'c-d', '', 'Zz']
# Tables that a template may look into.
_TABLES = {
    'numbers': (
        'numbers = tf.lookup.StaticHashTable(',
        '    tf.lookup.KeyValueTensorInitializer(',
        "        ['a', 'b', 'ab'], tf.constant([3, 4, 5], tf.int64)",
        '    ),',
        '    default_value=-1,',
        ')',
    ),
    'buckets': (
        'buckets = tf.lookup.StaticVocabularyTable(',
        '    tf.lookup.KeyValueTensorInitializer(',
        "        ['a', 'b'], tf.constant([0, 1], tf.int64)",
        '    ),',
        '    num_oov_buckets=2,',
        ')',
    ),
    'names': (
        'names = tf.lookup.StaticHashTable(',
        '    tf.lookup.KeyValueTensorInitializer(',
        "        tf.constant([0, 1, 2], tf.int64), ['x', 'y', 'z']",
        '    ),',
        "    default_value='?',",
        ')',
    ),
}
# Name -> codes of values, zero, and what is made of an accumulator `a` and a
# value `x`, of two accumulators, and of the last one. In `IN_ORDER` are those
# that tell in which order clients come, so that workers must not share them.
AGGREGATES = {
    'sum_reversed': ('fiFIMdlL', 'zero', 'x + a', 'a + b', 'a'),
    'sum_n': ('fFMiI', 'zero', 'tf.add_n([a, x])', 'tf.add_n([a, b])', 'a'),
    'difference': ('fiFI', 'zero', 'a - x', 'a + b', 'a'),
    'sum_once_more': ('fiFI', 'zero', 'a + x + x', 'a + b', 'a'),
    'sum_of_squares': ('fiFIM', 'zero', 'a + x * x', 'a + b', 'a * 2'),
    'broad': ('fi', 'tf.stack([zero, zero])', 'a + tf.stack([x, x])', 'a + b', 'a'),
    'broad_sum': ('fi', 'tf.stack([zero, zero])', 'a + x', 'a + b', 'a'),
    'doubled': ('f', 'zero', 'a + x + 0 * a', 'a + b', 'a'),
    'extremes': (
        'fiFI',
        '(zero + 99, zero - 99)',
        '(tf.minimum(a[0], x), tf.maximum(a[1], x))',
        '(tf.minimum(a[0], b[0]), tf.maximum(a[1], b[1]))',
        'a[1] - a[0]',
    ),
    'crossed': (
        'fF',
        '(zero, zero)',
        '(a[1] + x, a[0])',
        '(a[0] + b[0], a[1] + b[1])',
        'a[0] - 2 * a[1]',
    ),
    'numbered': (
        'fF',
        '(0, zero)',
        '(a[0] + 1, a[1] + x * tf.cast(a[0], tf.float32))',
        '(a[0] + b[0], a[1] + b[1])',
        'a[1]',
    ),
    'running': (
        'fi',
        '(zero, zero)',
        '(a[0] + x, a[1] + a[0])',
        '(a[0] + b[0], a[1] + b[1])',
        'a[1]',
    ),
    'mean': (
        'fF',
        '(0.0, zero)',
        '(a[0] + 1.0, a[1] + x)',
        '(a[0] + b[0], a[1] + b[1])',
        'a[1] / a[0]',
    ),
    'positive': (
        'fi',
        '0',
        'tf.cond(x > 0, lambda: a + 1, lambda: a)',
        'a + b',
        'a',
    ),
    'largest': ('fi', 'zero', 'tf.maximum(a, tf.abs(x))', 'tf.maximum(a, b)', 'a'),
    'product': ('i', 'zero + 1', 'a * (x % 3 + 1) % 101', 'a * b % 101', 'a'),
    'last': ('fiFIMs', 'zero', 'x', 'b', 'a'),
    'first': (
        'fiF',
        '(False, zero)',
        '(True, tf.where(a[0], a[1], x))',
        'b',
        'a[1]',
    ),
    'any': ('b', 'zero', 'a | x', 'a | b', 'a'),
    'all': ('B', 'zero', 'x & ~a', 'a ^ b', 'a'),
    'longest': (
        'sS',
        '0',
        'tf.maximum(a, tf.reduce_max(tf.strings.length(x)))',
        'tf.maximum(a, b)',
        'a',
    ),
    'joined': ('s', 'zero', 'a + x', 'a + b', 'a'),
    'words': (
        'sST',
        "tf.zeros([0], tf.string)",
        'tf.concat([a, tf.reshape(x, [-1])], 0)',
        'tf.concat([a, b], 0)',
        'a',
    ),
    'rows': (
        'fFD',
        'tf.zeros([0])',
        'tf.concat([a, tf.reshape(x, [-1])], 0)',
        'tf.concat([a, b], 0)',
        'a',
    ),
    'histogram': (
        'i',
        'tf.zeros([4], tf.int32)',
        'tf.tensor_scatter_nd_add(a, [[x % 4]], [1])',
        'a + b',
        'a',
    ),
    'sorted': (
        'f',
        'tf.zeros([3])',
        "tf.sort(tf.concat([a, [x]], 0), direction='DESCENDING')[:3]",
        "tf.sort(tf.concat([a, b], 0), direction='DESCENDING')[:3]",
        'a',
    ),
    'counted': (
        'fiFIMsbBSdlLDTXY',
        '0',
        'a + tf.cast(tf.size(x), tf.int32)',
        'a + b',
        'a',
    ),
}  # pyformat: disable
IN_ORDER = frozenset([
    'crossed', 'numbered', 'running', 'last', 'first', 'all', 'joined', 'words',
    'rows',
])  # pyformat: disable
# Accumulators whose shape is not that of their zero.
_GROWS = {'words': 'T', 'rows': 'D'}


def code_of(name: str) -> str:
  return name[1] if name.startswith('v') else name[0]


def type_source(code: str) -> str:
  dtype, shape, _ = CODES[code]
  return f'tff.TensorType(np.{dtype.__name__}, {shape})'


def tf_dtype(code: str) -> str:
  return f'tf.{tf.as_dtype(CODES[code][0]).name}'


def constant(name: str) -> str:
  """Returns the constant that a name stands for which nothing defines."""
  code = code_of(name)
  digits = ''.join(c for c in name if c.isdigit()) or '0'
  text = CODES[code][2][int(digits) % 3]
  return f'tf.constant({text}, {tf_dtype(code)})'


def structured(kind: str, leaves: list[str]) -> str:
  """Returns the source of a structure of leaves, which `tf.nest` flattens so."""
  if kind == 'alone' and len(leaves) == 1:
    return leaves[0]
  if kind in ('dict', 'nested'):
    names = 'abcdefgh'
    parts = [f"('{n}', {leaf})" for n, leaf in zip(names, leaves)]
    if kind == 'nested' and len(leaves) > 1:
      inner = f'({leaves[-2]}, ({leaves[-1]},))'
      parts = [*parts[:-2], f"('n', {inner})"]
    return f'collections.OrderedDict([{", ".join(parts)}])'
  return f'({"".join(leaf + ", " for leaf in leaves)})'


class _Writer:
  """Writes the Python of a program."""

  def __init__(self):
    self.lines = []
    self._indent = 0
    self._scopes = [set()]
    self._numbers = itertools.count()
    self._variables = set()
    self._helpers = set()

  def add(self, *lines: str) -> None:
    self.lines += ['  ' * self._indent + line for line in lines]

  @contextlib.contextmanager
  def block(self, head: str, names: Iterable[str] = ()):
    """Indents, and forgets afterwards what was defined."""
    self.add(head)
    self._indent += 1
    self._scopes.append(set(names))
    size = len(self.lines)
    yield
    if len(self.lines) == size:
      self.add('pass')
    self._scopes.pop()
    self._indent -= 1

  def define(self, *names: str) -> None:
    self._scopes[-1].update(names)

  def ref(self, name: str) -> str:
    if any(name in scope for scope in self._scopes):
      return name
    return constant(name)

  def refs(self, names: Iterable[str]) -> str:
    return ''.join(self.ref(name) + ', ' for name in names)

  def fresh(self, stem: str) -> str:
    return f'{stem}_{next(self._numbers)}'

  def write(self, block: list) -> None:
    for statement in block:
      getattr(self, '_' + statement[0])(*statement[1:])

  def _let(self, name, template, arguments):
    self.add(f'{name} = ' + template.format(*map(self.ref, arguments)))
    self.define(name)

  def _read(self, name, variable):
    if variable in self._variables:
      self.add(f'{name} = {variable}.read_value()')
      self.define(name)

  def _write(self, variable, method, name):
    if variable not in self._variables:
      return
    if method == 'row':
      self.add(f'{variable}[1].assign({self.ref(name)})')
    elif method == 'scatter':
      self.add(
          f'{variable}.scatter_add(tf.IndexedSlices([{self.ref(name)}], [1]))'
      )
    else:
      self.add(f'{variable}.{method}({self.ref(name)})')

  def _cond(self, style, predicate, then, other, outs):
    if style == 'if':
      parts = [
          self._part([], [], block, [[out[0], '', out[k]] for out in outs])
          for k, block in ((1, then), (2, other))
      ]
      for head, lines in zip((f'if {self.ref(predicate)}:', 'else:'), parts):
        with self.block(head):
          self.add(*lines)
    else:
      name = self.fresh('branch')
      for suffix, block, place in (('then', then, 1), ('else', other, 2)):
        with self.block(f'def {name}_{suffix}():'):
          self.write(block)
          found = self.refs(out[place] for out in outs)
          # Without results, a branch returns something all the same.
          self.add(f'return ({found or "tf.constant(0), "})')
      names = ''.join(out[0] + ', ' for out in outs) or '_, '
      self.add(
          f'({names}) = tf.cond({self.ref(predicate)}, {name}_then,'
          f' {name}_else)'
      )
    self.define(*(out[0] for out in outs))

  def _part(self, given, leaves, block, carried, stop='') -> list[str]:
    """Returns the lines of a loop's body, or of a branch.

    AutoGraph takes what functions refer to for alive beyond a loop. So if there
    are functions in the block, it becomes one itself, which stands before.

    Args:
      given: Names that are known in it only.
      leaves: Names of the leaves of an element.
      block: Its statements.
      carried: Names, their starts (which do not matter) and next values.
      stop: Name of the condition that ends the loop, or ''.
    """
    names = [name for name, start, _ in carried if start]
    outs = [name for name, _, _ in carried]
    size = len(self.lines)
    with self.block('', [*given, *names]):
      self._unpack(leaves)
      self.write(block)
      after = self.refs(after for _, _, after in carried)
      ends = self.ref(stop) if stop else ''
    lines = self.lines[size + 1 :]
    del self.lines[size:]
    indent = 2 * (self._indent + 1)
    if not any('def ' in line or 'lambda' in line for line in lines):
      lines = [line[indent:] for line in lines if line.strip() != 'pass']
      if outs:
        lines.append(f'({"".join(name + ", " for name in outs)}) = ({after})')
      if stop:
        lines += [f'if {ends}:', '  break']
      return lines
    part = self.fresh('part')
    parameters = [*given, *(['e'] if leaves else []), *names]
    self.add(f'def {part}({", ".join(parameters)}):')
    self.lines += lines
    self.add(f'  return ({after}{ends + ", " if stop else ""})')
    found = ''.join(name + ', ' for name in outs)
    found += f'stop_{part}, ' if stop else ''
    call = f'{part}({", ".join(parameters)})'
    lines = [f'({found}) = {call}' if found else call]
    if stop:
      lines += [f'if stop_{part}:', '  break']
    return lines

  def _start(self, carried) -> None:
    for name, start, _ in carried:
      self.add(f'{name} = {self.ref(start)}')
    self.define(*(name for name, _, _ in carried))

  def _loop(self, style, count, index, block, carried, stop):
    count = count if isinstance(count, int) else f'{self.ref(count)} % 4'
    if style == 'while_loop':
      body = self.fresh('body')
      names = [index, *(name for name, _, _ in carried)]
      starts = self.refs(start for _, start, _ in carried)
      with self.block(f'def {body}({", ".join(names)}):', names):
        self.write(block)
        after = self.refs(after for _, _, after in carried)
        self.add(f'return ({index} + 1, {after})')
      self.add(
          f'(_, {"".join(name + ", " for name in names[1:])}) = tf.while_loop(',
          f'    lambda {index}, *_: {index} < {count}, {body},'
          f' [tf.constant(0), {starts}]',
          ')',
      )
      self.define(*names[1:])
      return
    self._start(carried)
    lines = self._part([index], [], block, carried, stop)
    if style == 'while':
      self.add(f'{index} = tf.constant(0)')
      # First of all, so that it is known even if the loop is left.
      lines = [f'{index} += 1', *lines]
      head = f'while {index} < {count}:'
    else:
      head = f'for {index} in tf.range({count}):'
    with self.block(head, [index]):
      self.add(*lines)

  def chain(self, chain) -> str:
    """Returns the source of a dataset made of `data`."""
    found = 'data'
    for kind, *rest in chain:
      if kind in ('map', 'filter'):
        names, block, results = rest
        name = self.fresh(kind)
        with self.block(f'def {name}(*e):', names):
          self._unpack(names)
          self.write(block)
          parts = self.refs(results)
          self.add(
              f'return ({parts})' if kind == 'map' else f'return {parts[:-2]}'
          )
        found += f'.{kind}({name})'
      elif kind == 'take_while':
        found += f'.enumerate().take_while(lambda i, e: i < {rest[0]})'
        found += '.map(lambda i, e: e)'
      elif kind == 'zip':
        found = (
            f'tf.data.Dataset.zip(({found},'
            ' tf.data.Dataset.range(5).map('
            'lambda i: tf.cast(i, tf.int32))))'
        )
      elif kind == 'enumerate':
        found += '.enumerate().map(lambda i, e: (e, tf.cast(i, tf.int32)))'
      elif kind == 'window':
        found += f'.window({rest[0]}, shift={rest[1]}).flat_map(lambda *w:'
        found += ' tf.data.Dataset.zip(tuple(tf.nest.flatten(w))).take(2))'
      elif kind == 'twice':
        found += '.flat_map(lambda *e: tf.data.Dataset.from_tensors('
        found += 'e[0] if len(e) == 1 else e).repeat(2))'
      elif kind == 'concatenate':
        found = f'(lambda d: d.concatenate(d.take(1)))({found})'
      elif kind == 'shuffle':
        found += f'.shuffle({rest[0]}, seed={rest[1]})'
      elif kind == 'batch':
        found += f'.batch({rest[0]}, drop_remainder={rest[1]})'
      elif kind == 'parallel':
        found += '.map(lambda *e: e[0] if len(e) == 1 else e,'
        found += ' num_parallel_calls=2)'
      else:
        found += f'.{kind}({", ".join(map(str, rest))})'
    return found

  def _unpack(self, names) -> None:
    if names:
      self.add(f'{"".join(n + ", " for n in names)} = tf.nest.flatten(e)')
      self.define(*names)

  def _data(self, style, chain, leaves, block, carried, stop):
    dataset = self.chain(chain)
    if style == 'reduce':
      step = self.fresh('step')
      names = [name for name, _, _ in carried]
      with self.block(f'def {step}(state, e):', names):
        self.add(f'({"".join(name + ", " for name in names)}) = state')
        self._unpack(leaves)
        self.write(block)
        self.add(f'return ({self.refs(after for _, _, after in carried)})')
      starts = self.refs(start for _, start, _ in carried)
      self.add(
          f'({"".join(name + ", " for name in names)}) ='
          f' {dataset}.reduce(({starts}), {step})'
      )
      self.define(*names)
      return
    self._start(carried)
    lines = self._part([], leaves, block, carried, stop)
    if style == 'for':
      with self.block(f'for e in {dataset}:'):
        self.add(*lines)
    elif style == 'single':
      # For all clients that have something.
      self.add(f'one = {dataset}.take(1)')
      with self.block('if one.cardinality() == 1:'):
        self.add('e = one.get_single_element()', *lines)
    elif style == 'next':
      self.add(f'iterator = iter({dataset})')
      with self.block('if data.cardinality() > 1:'):
        with self.block('for _ in tf.range(2):'):
          self.add('e = next(iterator)', *lines)
    else:
      self.add(f'iterator = iter({dataset})')
      with self.block('for _ in tf.range(3):'):
        self.add('optional = iterator.get_next_as_optional()')
        with self.block('if optional.has_value():'):
          self.add('e = optional.get_value()', *lines)

  def _call(self, helper, arguments, outs):
    if helper in self._helpers and outs:
      self.add(f'({"".join(n + ", " for n in outs)}) = {helper}('
               f'{self.refs(arguments)[:-2]})')
      self.define(*outs)

  def _tape(self, watched, variables, block, target, outs):
    variables = [v for v in variables if v in self._variables]
    for name in watched:
      if self.ref(name) != name:
        self.add(f'{name} = {self.ref(name)}')
        self.define(name)
    self.add('with tf.GradientTape() as tape:')
    self._indent += 1
    if watched:
      self.add(f'tape.watch([{self.refs(watched)}])')
    self.write(block)
    loss = self.ref(target)
    self.add(f'loss = tf.reduce_sum({loss})')
    self._indent -= 1
    sources = [*watched, *variables]
    outs = outs[: len(sources)]
    if outs:
      self.add(
          f'({"".join(name + ", " for name in outs)}) = tape.gradient(loss,'
          f' [{"".join(s + ", " for s in sources[: len(outs)])}],'
          " unconnected_gradients='zero')"
      )
      self.define(*outs)

  def work(self, name: str, work: dict) -> None:
    """Writes the client work of a program."""
    types = [type_source(code_of(n)) for n in work['inputs']]
    parameters = list(work['inputs'])
    if work['elements'] is not None:
      element = structured(
          work['elements'][0],
          [type_source(code) for code in work['elements'][1]],
      )
      types.append(f'tff.SequenceType({element})')
      parameters.append('data')
    self.add(f'@tff.tensorflow.computation({", ".join(types)})')
    with self.block(f'def {name}({", ".join(parameters)}):', work['inputs']):
      text = repr(work)
      for table, lines in _TABLES.items():
        if f'{table}.' in text:
          self.add(*lines)
      for variable, source in work['variables']:
        self.add(f'{variable} = tf.Variable({source})')
      self._variables = {variable for variable, _ in work['variables']}
      self._helpers = set()
      for helper, arguments, block, results in work['helpers']:
        self.add('@tf.function')
        with self.block(f'def {helper}({", ".join(arguments)}):', arguments):
          self.write(block)
          self.add(f'return ({self.refs(results)})')
        self._helpers.add(helper)
      self.write(work['before'])
      if work['in_function']:
        arguments = [n for n in work['arguments'] if self.ref(n) == n]
        own = [*arguments]
        if work['elements'] is not None and work['hands_on_data']:
          own.append('data')
        self.add('@tf.function')
        with self.block(f'def run({", ".join(own)}):', arguments):
          self.write(work['body'])
          results = structured(work['result_kind'],
                               [self.ref(n) for n in work['results']])
          self.add(f'return {results}')
        self.add(f'return run({", ".join(own)})')
      else:
        self.write(work['body'])
        results = structured(work['result_kind'],
                             [self.ref(n) for n in work['results']])
        self.add(f'return {results}')
    self._variables, self._helpers = set(), set()

  def aggregate(self, name: str, kind: str, code: str) -> None:
    """Writes the four functions of a `federated_aggregate`."""
    _, zero, accumulate, merge, report = AGGREGATES[kind]
    own = f'zero = tf.zeros({CODES[code][1]}, {tf_dtype(code)})'
    grown = _GROWS.get(kind)
    self.add('@tff.tensorflow.computation')
    with self.block(f'def {name}_zero():'):
      if 'zero' in zero.replace('zeros', ''):
        self.add(own)
      self.add(f'return {zero}')
    state = (
        type_source(grown) if grown else f'{name}_zero.type_signature.result'
    )
    self.add(
        f'@tff.tensorflow.computation({state}, {type_source(code)})'
    )
    with self.block(f'def {name}_accumulate(a, x):'):
      self.add(f'return {accumulate}')
    self.add(f'@tff.tensorflow.computation({state}, {state})')
    with self.block(f'def {name}_merge(a, b):'):
      self.add(f'return {merge}')
    self.add(f'@tff.tensorflow.computation({state})')
    with self.block(f'def {name}_report(a):'):
      self.add(f'return {report}')


def _path(kind: str, index: int, size: int) -> str:
  """Returns the source that picks a leaf of a structure of `structured`."""
  if kind == 'alone' and size == 1:
    return ''
  if kind == 'nested' and size > 1 and index >= size - 2:
    return "['n'][0]" if index == size - 2 else "['n'][1][0]"
  if kind in ('dict', 'nested'):
    return f"['{'abcdefgh'[index]}']"
  return f'[{index}]'


def source(program: dict) -> str:
  """Returns the Python of a program, which defines `computation`."""
  writer = _Writer()
  writer.add(
      'import collections',
      'import numpy as np',
      'import tensorflow as tf',
      'import tensorflow_federated as tff',
      '',
  )
  for number, work in enumerate(program['works']):
    writer.work(f'work_{number}', work)
    writer.add('')
  outputs = []
  for number, (work, kind, index) in enumerate(program['aggregations']):
    code = code_of(program['works'][work]['results'][index])
    if kind in AGGREGATES:
      writer.aggregate(f'aggregate_{number}', kind, code)
      writer.add('')
  server, own = program['server'], program['own']
  types = [
      f'tff.FederatedType({type_source(code_of(n))}, tff.SERVER)'
      for n in server
  ] + [
      f'tff.FederatedType({type_source(code_of(n))}, tff.CLIENTS)' for n in own
  ]
  parameters = [*server, *own]
  if program['elements'] is not None:
    element = structured(
        program['elements'][0],
        [type_source(code) for code in program['elements'][1]],
    )
    types.append(f'tff.FederatedType(tff.SequenceType({element}), tff.CLIENTS)')
    parameters.append('data')
  writer.add(f'@tff.federated_computation({", ".join(types)})')
  with writer.block(f'def computation({", ".join(parameters)}):'):
    for number, work in enumerate(program['works']):
      inputs = []
      for name, origin in zip(work['inputs'], work['origins']):
        if origin == 'server':
          inputs.append(f'tff.federated_broadcast({name})')
        elif origin == 'own':
          inputs.append(name)
        elif origin == 'kept':
          first = program['works'][0]
          path = _path(first['result_kind'], work['kept'],
                       len(first['results']))
          inputs.append(f'result_0{path}')
        else:
          inputs.append(f'tff.federated_broadcast(total_{origin})')
      if work['elements'] is not None:
        inputs.append('data')
      argument = inputs[0] if len(inputs) == 1 else f'({", ".join(inputs)})'
      writer.add(f'result_{number} = tff.federated_map(work_{number},'
                 f' {argument})')
      for place, (of, kind, index) in enumerate(program['aggregations']):
        if of != number:
          continue
        path = _path(work['result_kind'], index, len(work['results']))
        value = f'result_{number}{path}'
        if kind in AGGREGATES:
          stem = f'aggregate_{place}'
          value = (
              f'tff.federated_aggregate({value}, {stem}_zero(),'
              f' {stem}_accumulate, {stem}_merge, {stem}_report)'
          )
        elif kind != 'keep':
          value = f'tff.federated_{kind}({value})'
        writer.add(f'total_{place} = {value}')
        outputs.append(f'total_{place}')
    writer.add(f'return ({"".join(o + ", " for o in outputs)})')
  return '\n'.join(writer.lines) + '\n'


_numbers = itertools.count()


def build(program: dict, name: str = 'computation') -> Callable:
  """Returns the computation of a program, or a client work such as work_0."""
  text = source(program)
  # AutoGraph reads the source of functions.
  file_name = f'<program {next(_numbers)}>'
  lines = text.splitlines(keepends=True)
  linecache.cache[file_name] = (len(text), None, lines, file_name)
  module = types.ModuleType(file_name)
  sys.modules[file_name] = module
  try:
    exec(compile(text, file_name, 'exec'), vars(module))  # pylint: disable=exec-used
    return getattr(module, name)
  finally:
    del linecache.cache[file_name], sys.modules[file_name]


def _array(draws, code: str, shape: list):
  dtype = CODES[code][0]
  if dtype is np.str_:
    return np.array(_WORDS, object)[draws.randint(0, len(_WORDS), shape)]
  if dtype is np.bool_:
    return draws.randint(0, 2, shape).astype(bool)
  if np.issubdtype(dtype, np.integer):
    return draws.randint(-3, 5, shape).astype(dtype)
  # Halves and quarters, of which sums and products are exact.
  return (draws.randint(-8, 9, shape) / 4).astype(dtype)


def _value(draws, code: str):
  shape = [2 if size is None else size for size in CODES[code][1]]
  found = _array(draws, code, shape)
  return found if shape or code != 's' else str(found)


def _nested(kind: str, leaves: list):
  return eval(  # pylint: disable=eval-used
      structured(kind, [f'leaves[{i}]' for i in range(len(leaves))]),
      {'leaves': leaves, 'collections': collections},
  )


def _dataset(draws, elements, clients, size: int):
  """Returns what a client has: a list of elements, or a dataset."""
  kind, codes = elements
  is_batched = codes[0] in ROWS
  rows = [ROWS[code] if is_batched else code for code in codes]
  columns = [_array(draws, row, [size, *CODES[row][1]]) for row in rows]
  batch_size = clients['batch_size']
  if clients['form'] == 'list':
    if not is_batched:
      return [
          _nested(kind, [column[row] for column in columns])
          for row in range(size)
      ]
    return [
        _nested(kind, [c[start : start + batch_size] for c in columns])
        for start in range(0, size, batch_size)
    ]
  dtypes = [tf.as_dtype(CODES[row][0]) for row in rows]
  tensors = [tf.constant(c, dtype) for c, dtype in zip(columns, dtypes)]
  dataset = tf.data.Dataset.from_tensor_slices(_nested(kind, tensors))
  for step, *rest in clients['steps']:
    if step == 'shuffle':
      # TFF leaves open which of two loops comes first outside of a function.
      dataset = dataset.shuffle(
          rest[0], seed=rest[1], reshuffle_each_iteration=False
      )
    elif step == 'map':
      dataset = dataset.map(
          lambda *e: tf.nest.map_structure(
              tf.identity, e[0] if len(e) == 1 else e
          )
      )
    else:
      dataset = getattr(dataset, step)(*rest)
  return dataset.batch(batch_size) if is_batched else dataset


def arguments(program: dict) -> list:
  """Returns the arguments of the computation of a program."""
  clients = program['clients']
  draws = np.random.RandomState(clients['seed'])
  found = [_value(draws, code_of(name)) for name in program['server']]
  sizes = clients['sizes']
  for name in program['own']:
    found.append([_value(draws, code_of(name)) for _ in sizes])
  if program['elements'] is not None:
    found.append([
        _dataset(draws, program['elements'], clients, size) for size in sizes
    ])
  return found


def is_in_order(program: dict) -> bool:
  """Returns whether the result depends on the order of clients."""
  return any(kind in IN_ORDER for _, kind, _ in program['aggregations'])


def blocks(value) -> Iterator[list]:
  """Yields all lists of statements in a part of a program."""
  if isinstance(value, dict):
    for part in value.values():
      yield from blocks(part)
  elif isinstance(value, list):
    if value and all(
        isinstance(s, list) and s and s[0] in _STATEMENTS for s in value
    ):
      yield value
    for part in value:
      yield from blocks(part)


_STATEMENTS = frozenset([
    'let', 'read', 'write', 'cond', 'loop', 'data', 'call', 'tape',
    'map', 'filter', 'batch', 'repeat', 'take', 'skip', 'shuffle', 'prefetch',
    'cache', 'enumerate', 'zip', 'window', 'twice', 'concatenate', 'parallel',
    'take_while', 'shard',
])  # pyformat: disable
