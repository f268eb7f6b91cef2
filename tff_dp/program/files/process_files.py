# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The two computations of a process as files.

A run keeps its process, as TFF serializes computations, so that the process can
be exported without the code that built it.
"""

from collections.abc import Iterator
import dataclasses
import functools
import pathlib
from typing import Any

from google.protobuf import message as message_lib
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp.execution.data import graph_defs
from tff_dp.files import regular
from tff_dp.files import run_directory

# Name of the folder in `release/` of a run.
FOLDER = 'process'
INITIALIZE, NEXT = 'initialize.pb', 'next.pb'
# 64 random bits have a smaller absolute value once in a million times.
_LEAST_WORD = 2**43
# Type of a message that holds another, here a graph.
ANY = 'google.protobuf.Any'
_TYPE = 'tensorflow_federated.v0.Type'
# Largest size of a protocol buffer.
_MOST_BYTES = 2**31


@dataclasses.dataclass(frozen=True)
class KeptProcess:
  """A process as files hold it: with computations, but without methods.

  Attributes:
    initialize: Computation that returns a state at the server.
    next: Computation from a state and the clients' data to the next state and
      metrics.
  """

  initialize: tff.Computation
  next: tff.Computation


def keep(folder: pathlib.Path, process) -> None:
  """Writes a process, unless it may contain a noise key or is Python code.

  Args:
    folder: Folder for the two files of the process, and nothing else.
    process: Any object with `initialize` and `next`.
  """
  both = process.initialize, process.next
  if not all(isinstance(each, tff.Computation) for each in both):
    return  # Python wraps it, which no file can hold.
  if any(map(keys_in, both)):
    return
  folder.mkdir(exist_ok=True)
  write(folder / INITIALIZE, process.initialize)
  write(folder / NEXT, process.next)


def read_kept(folder: pathlib.Path) -> KeptProcess | None:
  """Returns the process that `keep` wrote, `None` if it wrote none."""
  if not (folder / NEXT).exists():
    return None
  return KeptProcess(read(folder / INITIALIZE), read(folder / NEXT))


def write(path: pathlib.Path, computation: tff.Computation) -> None:
  """Writes a computation. Equal computations give equal bytes."""
  proto = tff.framework.serialize_computation(computation)
  content = proto.SerializeToString(deterministic=True)
  run_directory.write_atomically(path, content)


def read(path: pathlib.Path) -> tff.Computation:
  """Returns the computation in a file. Python containers are lost."""
  return tff.framework.deserialize_computation(read_proto(path))


def read_proto(path: pathlib.Path) -> Any:
  """Returns the computation in a file as TFF's protocol buffer."""
  return _proto_class().FromString(regular.read(path, most_bytes=_MOST_BYTES))


def keys_in(computation: tff.Computation) -> list[str]:
  """Returns names of the constants in a computation that may be noise keys.

  A key is a pair of 64-bit words that look random. So every constant that
  consists of one or more such pairs may be keys. Other constants of this
  library do not look random.

  Args:
    computation: Any part of a process.
  """
  return [
      node.name
      for graph_def in graphs_of(computation)
      for node in graph_defs.all_nodes(graph_def)
      if node.op == 'Const' and _is_key(node.attr['value'].tensor)
  ]


def graphs_of(computation: tff.Computation) -> Iterator[tf.compat.v1.GraphDef]:
  """Yields all TensorFlow graphs of a computation."""
  for part in parts(tff.framework.serialize_computation(computation)):
    if part.DESCRIPTOR.full_name == ANY:
      yield unpacked(part)


def parts(proto: Any) -> Iterator[Any]:
  """Yields a `Computation` proto of TFF and all messages in it but types."""
  waiting = [proto]
  while waiting:
    message = waiting.pop()
    yield message
    if message.DESCRIPTOR.full_name == ANY:
      continue
    for field, value in message.ListFields():
      kind = field.message_type
      # Types, most of the messages, hold no code.
      if kind is None or kind.full_name == _TYPE:
        continue
      waiting.extend(
          [value] if isinstance(value, message_lib.Message) else value
      )


def unpacked(packed: Any) -> tf.compat.v1.GraphDef:
  """Returns the graph in an `Any`."""
  graph_def = tf.compat.v1.GraphDef()
  packed.Unpack(graph_def)
  return graph_def


def _is_key(tensor) -> bool:
  if tensor.dtype != tf.int64.as_datatype_enum:
    return False
  words = np.ravel(tf.make_ndarray(tensor))
  pairs = words.size >= 2 and words.size % 2 == 0
  return pairs and bool((np.abs(words.astype(float)) > _LEAST_WORD).all())


@functools.cache
def _proto_class():
  @tff.tensorflow.computation
  def empty():
    return tf.constant(0)

  return type(tff.framework.serialize_computation(empty))
