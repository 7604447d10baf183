#include "error_bound.h"

#include <algorithm>
#include <cmath>

#include "numbers.h"

namespace cgx::tool {
namespace {

constexpr double kScaleRoundsUp = 1.5;
constexpr double kSlack = 1 + 0x1p-10;

struct Sides {
  double positive = 0;
  double negative = 0;
  void include(double low, double high) {
    positive = std::max(positive, high);
    negative = std::max(negative, -low);
  }
};

/// Calls visit(first, last) for each bucket of `count` elements.
template <class Visit>
void forEachBucket(std::size_t count, Visit&& visit) {
  for (std::size_t first = 0; first < count; first += codec::kBucket)
    visit(first, std::min(count, first + codec::kBucket));
}

float rounded(DType dtype, float value) {
  std::byte element[4];
  floatToElement(dtype, value, element, 0);
  return elementToFloat(dtype, element, 0);
}

}  // namespace

double quantisationBound(Mode mode, double positive, double negative) {
  if (mode.bits == codec::kExactBits) return 0;
  const double longer = std::max(positive, negative);
  const double shorter = std::min(positive, negative);
  const bool nearest = mode.rounding == Rounding::Nearest;
  if (mode.bits == 1) return longer * kScaleRoundsUp * kSlack * (nearest ? 1 : 2);
  const double levels = std::ldexp(1.0, mode.bits - 1);
  const double step = kScaleRoundsUp * std::max(longer / levels, shorter / (levels - 1));
  return step * kSlack * (nearest ? 0.5 : 1);
}

BoundedSum::BoundedSum(Mode mode, DType dtype, std::span<double> exact, std::span<float> ordered,
                       std::span<double> magnitude, std::span<double> bound)
    : mode_(mode), dtype_(dtype), exact_(exact), ordered_(ordered), magnitude_(magnitude), bound_(bound) {}

void BoundedSum::add(std::span<const float> values) {
  const bool first = ranks_++ == 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    exact_[i] = first ? values[i] : exact_[i] + values[i];
    ordered_[i] = first ? values[i] : ordered_[i] + values[i];
    magnitude_[i] = (first ? 0 : magnitude_[i]) + std::fabs(values[i]);
  }
  forEachBucket(values.size(), [&](std::size_t begin, std::size_t end) {
    Sides sides;  // a tile with a value that is not finite travels raw, so such values do not count
    for (std::size_t i = begin; i < end; ++i)
      if (std::isfinite(values[i])) sides.include(values[i], values[i]);
    const double bound = quantisationBound(mode_, sides.positive, sides.negative);
    for (std::size_t i = begin; i < end; ++i) bound_[i] = (first ? 0 : bound_[i]) + bound;
  });
}

void BoundedSum::finish() {
  if (mode_.bits == codec::kExactBits) return;
  forEachBucket(bound_.size(), [&](std::size_t begin, std::size_t end) {
    Sides sides;
    for (std::size_t i = begin; i < end; ++i) {
      if (!std::isfinite(exact_[i])) continue;
      // ranks - 1 fp32 additions, each off by half an ulp of at most the magnitudes' sum, and the sum rounded to the
      // type.
      const double added = magnitude_[i] + bound_[i];
      bound_[i] += added * (ranks_ * 0x1p-24 + halfUlpOf(dtype_)) + halfDenormalOf(dtype_);
      sides.include(exact_[i] - bound_[i], exact_[i] + bound_[i]);
    }
    const double last = quantisationBound(mode_, sides.positive, sides.negative);
    for (std::size_t i = begin; i < end; ++i) {
      bound_[i] += last;
      bound_[i] += (std::fabs(exact_[i]) + bound_[i]) * halfUlpOf(dtype_) +
                   halfDenormalOf(dtype_);  // the decoded value, rounded
    }
  });
}

bool BoundedSum::permits(std::size_t i, float got) const {
  if (mode_.bits == codec::kExactBits) {
    const float expected = rounded(dtype_, ordered_[i]);
    return std::isnan(expected) ? std::isnan(got) : got == expected;
  }
  if (std::isnan(exact_[i])) return std::isnan(got);
  if (std::isinf(exact_[i])) return got == static_cast<float>(exact_[i]);
  if (std::isfinite(got) && std::fabs(got - exact_[i]) <= bound_[i]) return true;
  // A sum that the type cannot hold becomes Inf; on the way there, in rank order, even opposite Infs may meet.
  if (magnitude_[i] + bound_[i] < largestOf(dtype_)) return false;
  return !std::isfinite(got) || std::fabs(got) == static_cast<float>(largestOf(dtype_));
}

}  // namespace cgx::tool
