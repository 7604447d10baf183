// How far a result may be from the exact sum: the bound of each mode as a formula over the inputs, written from
// docs/codec.md and sharing no code with the codec. Pure.
#pragma once

#include <cstddef>
#include <span>

#include "cgx/codec.h"
#include "cgx/settings.h"

namespace cgx::tool {

struct Mode {
  int bits = 4;  // 1..8, or codec::kExactBits
  Rounding rounding = Rounding::Nearest;
};

/// Largest error of an element that is quantised once in a bucket whose values lie between -`negative` and +`positive`.
///
/// With H = 2^(bits-1), the step is max(longer / H, shorter / (H - 1)), rounded up to a ratio of the tile's scale that is
/// at most 1.5 times as large. Nearest is off by half a step, stochastic by less than one. One bit has the levels +step
/// and -step with step <= 1.5 longer, so nearest is off by at most that, stochastic by twice that. 2^-10 more covers the
/// fp32 arithmetic and the noise's last bit.
double quantisationBound(Mode mode, double positive, double negative);

/// What accumulates over the ranks of one bucket-aligned run of elements, and the verdict on it. Spans are parallel, a
/// multiple of codec::kBucket long unless they end the message.
class BoundedSum {
 public:
  BoundedSum(Mode mode, codec::DType dtype, std::span<double> exact, std::span<float> ordered,
             std::span<double> magnitude, std::span<double> bound);

  /// Ranks in order, from 0. Values are those of the element type.
  void add(std::span<const float> values);
  /// After the last rank: adds what the sum's own quantisation and roundings may do.
  void finish();
  /// Is `got` a permitted result for element i?
  bool permits(std::size_t i, float got) const;

 private:
  Mode mode_;
  codec::DType dtype_;
  std::span<double> exact_;      // fp64 sum
  std::span<float> ordered_;     // fp32 sum in rank order: exact mode's result before it is rounded to the type
  std::span<double> magnitude_;  // sum of the absolute values
  std::span<double> bound_;
  int ranks_ = 0;
};

}  // namespace cgx::tool
