# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Convolutions of many clients at once, each with its own filter.

TensorFlow has no such kernel for a CPU, and `tf.vectorized_map` loops over the
clients. Here a convolution is a gather and a product of matrices, which it
vectorises:

    patches = pixels under the filter   [places, pixels * channels]
    result  = patches x filter          [places, filters]

There is one row for each place in each image of a client's batch. A pixel beyond
the border is zero.
"""

from collections.abc import Callable
import dataclasses
import functools
import math

import numpy as np
import tensorflow as tf

from tff_dp.execution import errors

# Fewest channels for which pixels are gathered one by one.
_FEW_CHANNELS = 8


@dataclasses.dataclass(frozen=True)
class _Geometry:
  """Which pixels are under the filter, at each place of an image.

  Attributes:
    image: Height, width and channels of the images.
    filter: Height, width, channels and number of filters.
    strides: Steps between places, down and across.
    dilations: Steps between pixels under the filter, down and across.
    padding: Rows before and after an image, then columns.
  """

  image: tuple[int, int, int]
  filter: tuple[int, int, int, int]
  strides: tuple[int, int]
  dilations: tuple[int, int]
  padding: tuple[tuple[int, int], tuple[int, int]]

  @property
  def num_places(self) -> tuple[int, int]:
    """Number of places of the filter in an image, down and across."""
    return tuple(
        (size + before + after - self._span(axis)) // self.strides[axis] + 1
        for axis, (size, (before, after)) in enumerate(
            zip(self.image, self.padding)
        )
    )

  def _span(self, axis: int) -> int:
    return (self.filter[axis] - 1) * self.dilations[axis] + 1

  @property
  def padded(self) -> tuple[int, int]:
    """Height and width of an image with its padding."""
    return tuple(
        size + before + after
        for size, (before, after) in zip(self.image, self.padding)
    )

  def _under_filter(self, axis: int) -> np.ndarray:
    """Rows or columns under the filter at each place, [places, filter].

    They are counted in a padded image.
    """
    starts = np.arange(self.num_places[axis]) * self.strides[axis]
    steps = np.arange(self.filter[axis]) * self.dilations[axis]
    return starts[:, np.newaxis] + steps

  @functools.cached_property
  def columns(self) -> np.ndarray:
    """Columns under the filter at each place, int32 [places across, width]."""
    return self._under_filter(1).astype(np.int32)

  @functools.cached_property
  def strips(self) -> np.ndarray:
    """Strips under the filter, int32 [places, height of the filter].

    A strip is one row of an image under the filter at one place across. Strips
    are counted along the rows of a padded image.
    """
    rows = self._under_filter(0)[:, np.newaxis, :]
    across = np.arange(self.num_places[1])[:, np.newaxis]
    found = rows * self.num_places[1] + across
    return found.reshape(-1, self.filter[0]).astype(np.int32)

  @functools.cached_property
  def uses(self) -> np.ndarray:
    """Parts of all patches that are one pixel, int32 [pixels, most uses].

    A part is one pixel under the filter at one place. A pixel with fewer uses
    than others is filled up with the number of all parts.
    """
    rows = self._under_filter(0)[:, np.newaxis, :, np.newaxis]
    columns = self._under_filter(1)[np.newaxis, :, np.newaxis, :]
    num_pixels = math.prod(self.padded)
    parts = (rows * self.padded[1] + columns).ravel()
    order = np.argsort(parts, kind='stable')
    counts = np.bincount(parts, minlength=num_pixels)
    starts = np.cumsum(counts) - counts
    steps = np.arange(counts.max())
    places = np.minimum(starts[:, np.newaxis] + steps, parts.size - 1)
    is_used = steps < counts[:, np.newaxis]
    found = np.where(is_used, order[places], parts.size)
    (top, _), (left, _) = self.padding
    height, width, _ = self.image
    found = found.reshape(*self.padded, -1)
    found = found[top : top + height, left : left + width]
    return found.reshape(height * width, -1).astype(np.int32)


def _geometry(node, image, filters) -> _Geometry:
  """Returns the geometry of a convolution.

  Args:
    node: Node of the convolution.
    image: Shape of the images, with the batch.
    filters: Shape of the filter.

  Raises:
    NotPlainError: If a size is not known, or if channels come first.
  """
  image, filters = image[1:], filters[:]
  if not (image.is_fully_defined() and filters.is_fully_defined()):
    raise errors.NotPlainError(f'{node.name} ({node.op}) has unknown sizes')
  if node.attr['data_format'].s not in (b'', b'NHWC'):
    raise errors.NotPlainError(f'{node.name} ({node.op}) has channels first')
  image, filters = tuple(image.as_list()), tuple(filters.as_list())
  if image[2] != filters[2] or 0 in (*image, *filters):
    raise errors.NotPlainError(f'{node.name} ({node.op}) is in groups or empty')
  strides = tuple(node.attr['strides'].list.i[1:3])
  dilations = tuple(node.attr['dilations'].list.i[1:3]) or (1, 1)
  padding = []
  for axis in range(2):
    span = (filters[axis] - 1) * dilations[axis] + 1
    if node.attr['padding'].s == b'VALID':
      padding.append((0, 0))
    elif node.attr['padding'].s == b'SAME':
      places = -(-image[axis] // strides[axis])
      total = max(0, (places - 1) * strides[axis] + span - image[axis])
      padding.append((total // 2, total - total // 2))
    else:
      given = node.attr['explicit_paddings'].list.i
      padding.append(tuple(given[2 + 2 * axis : 4 + 2 * axis]))
  found = _Geometry(image, filters, strides, dilations, tuple(padding))
  if min(found.num_places) < 1:
    raise errors.NotPlainError(f'{node.name} ({node.op}) has no result')
  return found


def _zeros(images: tf.Tensor, axis: int, number: int) -> list[tf.Tensor]:
  """Returns `number` rows or columns of zeros for images, or nothing for 0."""
  if not number:
    return []
  shape = tf.unstack(tf.shape(images))
  shape[axis] = number
  return [tf.zeros(tf.stack(shape), images.dtype)]


def _padded(images: tf.Tensor, geometry: _Geometry) -> tf.Tensor:
  """Returns images with zeros around them."""
  for axis, numbers in enumerate(geometry.padding, start=1):
    before, after = (_zeros(images, axis, number) for number in numbers)
    images = tf.concat([*before, images, *after], axis)
  return images


def _strips(images: tf.Tensor, geometry: _Geometry) -> tf.Tensor:
  """Returns the strips of padded images, see `_Geometry.strips`.

  The shape is [batch, rows * places across, width of the filter * channels].
  """
  height, width = geometry.padded
  columns, channels = geometry.columns, geometry.image[2]
  num_places, filter_width = columns.shape
  if channels < _FEW_CHANNELS and geometry.dilations[1] == 1:
    # A gather takes as long for one number as for a dozen.
    rows = tf.reshape(images, [-1, height, width * channels])
    starts = columns[:, 0] * channels
    length = filter_width * channels
    found = tf.concat(
        [rows[:, :, start : start + length] for start in starts], 2
    )
  else:
    found = tf.gather(images, columns.ravel(), axis=2)
  return tf.reshape(found, [-1, height * num_places, filter_width * channels])


class Convolutions:
  """The convolutions of one graph, which share what they have in common."""

  def __init__(self):
    self._patches = {}

  def operation(self, node) -> Callable[..., list[tf.Tensor]] | None:
    """Returns the function of a node's inputs that replaces a convolution."""
    found = {
        'Conv2D': self._forward,
        'Conv2DBackpropFilter': self._backward_to_filter,
        'Conv2DBackpropInput': self._backward_to_images,
    }.get(node.op)
    return found and functools.partial(found, node)

  def _patches_of(self, images: tf.Tensor, geometry: _Geometry) -> tf.Tensor:
    """Returns the pixels under the filter, [batch * places, pixels * channels].
    """
    key = id(images), geometry
    here = tf.compat.v1.get_default_graph()
    if key in self._patches and self._patches[key][1].graph is here:
      return self._patches[key][1]
    strips = _strips(_padded(images, geometry), geometry)
    patches = tf.gather(strips, geometry.strips.ravel(), axis=1)
    found = tf.reshape(patches, [-1, math.prod(geometry.filter[:3])])
    # The images are kept, so that their id is not given to another tensor.
    self._patches[key] = images, found
    return found

  def _forward(self, node, images, filters) -> list[tf.Tensor]:
    geometry = _geometry(node, images.shape, filters.shape)
    *_, num_filters = geometry.filter
    product = tf.matmul(
        self._patches_of(images, geometry),
        tf.reshape(filters, [-1, num_filters]),
    )
    return [tf.reshape(product, [-1, *geometry.num_places, num_filters])]

  def _backward_to_filter(self, node, images, sizes, gradient):
    # A tensor of these sizes has them as its static shape, if they are known.
    filters = tf.zeros(sizes).shape
    geometry = _geometry(node, images.shape, filters)
    product = tf.matmul(
        self._patches_of(images, geometry),
        tf.reshape(gradient, [-1, geometry.filter[3]]),
        transpose_a=True,
    )
    return [tf.reshape(product, geometry.filter)]

  def _backward_to_images(self, node, sizes, filters, gradient):
    geometry = _geometry(node, tf.zeros(sizes).shape, filters.shape)
    *_, channels, num_filters = geometry.filter
    product = tf.matmul(
        tf.reshape(gradient, [-1, num_filters]),
        tf.reshape(filters, [-1, num_filters]),
        transpose_b=True,
    )
    num_parts = math.prod(geometry.num_places) * math.prod(geometry.filter[:2])
    parts = tf.reshape(product, [-1, num_parts, channels])
    uses = geometry.uses
    if uses.max() == num_parts:
      parts = tf.concat([parts, tf.zeros_like(parts[:, :1])], 1)
    parts = tf.gather(parts, uses.ravel(), axis=1)
    parts = tf.reshape(parts, [-1, *uses.shape, channels])
    return [tf.reshape(tf.reduce_sum(parts, 2), [-1, *geometry.image])]
