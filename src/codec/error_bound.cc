// How far a result may be from the exact sum: the formula of docs/codec.md in fp64. Shares no code with the codec that
// it judges and runs in tests and tools only.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "cgx/codec.h"

namespace cgx::codec {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kArithmetic = 1 + 0x1p-12;  // fp32 roundings of levels and steps, granularity of the noise

using Tile = std::array<double, kTile>;

/// Largest step of a bucket whose ideal one is `ideal`, in a tile with scale `scale`: the next representable ratio is
/// at most a sixteenth larger down to 1/16, below that it is at most half as large again (and at most 1/16).
double largestStep(double ideal, double scale) { return std::max(ideal * 17 / 16, std::min(ideal * 1.5, scale / 16)); }

struct Sides {
  double longer = 0;
  double shorter = 0;
};
Sides sidesOf(const Tile& low, const Tile& high, std::size_t bucket) {
  double positive = 0;
  double negative = 0;
  for (std::size_t i = bucket * kBucket; i < (bucket + 1) * kBucket; ++i) {
    positive = std::max(positive, high[i]);
    negative = std::max(negative, -low[i]);
  }
  return {std::max(positive, negative), std::min(positive, negative)};
}

/// Adds to `bound` what quantising a tile with low[i] <= x[i] <= high[i] once may do to each element.
void addQuantisation(const EncodeSpec& spec, const Tile& low, const Tile& high, Tile& bound) {
  if (spec.bits == kExactBits) return;
  const double levels = std::ldexp(1.0, spec.bits - 1);
  std::array<Sides, kTile / kBucket> sides;
  std::array<double, kTile / kBucket> ideal;
  for (std::size_t k = 0; k < sides.size(); ++k) {
    sides[k] = sidesOf(low, high, k);
    ideal[k] = spec.bits == 1 ? sides[k].longer : std::max(sides[k].longer / levels, sides[k].shorter / (levels - 1));
  }
  const double scale = *std::max_element(ideal.begin(), ideal.end());
  const bool nearest = spec.rounding == Rounding::Nearest;
  for (std::size_t k = 0; k < sides.size(); ++k) {
    const double step = largestStep(ideal[k], scale);
    double error = nearest ? step / 2 : step;
    if (spec.bits == 1) error = nearest ? 0.75 * sides[k].longer : sides[k].longer + step;
    for (std::size_t i = k * kBucket; i < (k + 1) * kBucket; ++i) bound[i] += error * kArithmetic;
  }
}

/// What rounding a value of at most this magnitude to the dtype may do to it.
double roundingError(DType dtype, double magnitude) {
  switch (dtype) {
    case DType::F16:
      return std::max(magnitude * 0x1p-11, 0x1p-25);
    case DType::BF16:
      return std::max(magnitude * 0x1p-8, 0x1p-134);
    case DType::F32:
      break;
  }
  return 0;
}
double largestFinite(DType dtype) {
  return dtype == DType::F16 ? 65504.0 : dtype == DType::BF16 ? 0x1.FEp127 : std::numeric_limits<float>::max();
}

/// Adds one rank's part: a tile with an Inf or NaN travels raw, so it has no error.
void addContribution(const EncodeSpec& spec, std::span<const float> x, Tile& exact, Tile& magnitude, Tile& bound) {
  Tile value{};
  bool finite = true;
  for (std::size_t i = 0; i < x.size(); ++i) {
    value[i] = x[i];
    exact[i] += value[i];
    magnitude[i] += std::fabs(value[i]);
    finite = finite && std::isfinite(x[i]);
  }
  if (finite) addQuantisation(spec, value, value, bound);
}

/// The owner's roundings, the second quantisation and the rounding of what it decodes to.
void addSumErrors(const EncodeSpec& spec, DType dtype, std::size_t ranks, const Tile& exact, const Tile& magnitude,
                  Tile& bound) {
  Tile low{};
  Tile high{};
  for (std::size_t i = 0; i < kTile; ++i) {
    const double largest = magnitude[i] + bound[i];
    bound[i] += largest * static_cast<double>(ranks) * 0x1p-24 + roundingError(dtype, largest);
    // What may overflow may also just not do so: then it is as large as the dtype goes, and widens its bucket's range.
    const bool mayOverflow = !(largest + bound[i] < largestFinite(dtype));  // true for NaN
    if (mayOverflow) bound[i] = kInfinity;
    low[i] = mayOverflow ? -largestFinite(dtype) : exact[i] - bound[i];
    high[i] = mayOverflow ? largestFinite(dtype) : exact[i] + bound[i];
  }
  addQuantisation(spec, low, high, bound);
  for (std::size_t i = 0; i < kTile; ++i) bound[i] += roundingError(dtype, std::fabs(exact[i]) + bound[i]);
}

}  // namespace

void allReduceBound(const EncodeSpec& spec, DType dtype, std::span<const float* const> contributions, std::size_t count,
                    double* exact, double* bound) noexcept {
  for (std::size_t first = 0; first < count; first += kTile) {
    const std::size_t elements = std::min(kTile, count - first);
    Tile sum{};
    Tile magnitude{};
    Tile error{};
    for (const float* contribution : contributions) {
      addContribution(spec, std::span(contribution + first, elements), sum, magnitude, error);
    }
    addSumErrors(spec, dtype, contributions.size(), sum, magnitude, error);
    for (std::size_t i = 0; i < elements; ++i) {
      exact[first + i] = sum[i];
      bound[first + i] = std::isfinite(sum[i]) ? error[i] : kInfinity;
    }
  }
}

}  // namespace cgx::codec
