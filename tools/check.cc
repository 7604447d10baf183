#include "check.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <vector>

#include "numbers.h"

namespace cgx::tool {
namespace {

constexpr std::size_t kPiece = 32 * codec::kTile;  // elements at a time

/// One piece of the message: every rank's values and what follows from them.
class Piece {
 public:
  Piece(const Row& row, int ranks, Mode mode)
      : row_(row),
        mode_(mode),
        values_(static_cast<std::size_t>(ranks), std::vector<float>(std::min(row.count, kPiece))),
        elements_(std::min(row.count, kPiece) * codec::bytesOf(row.dtype)),
        exact_(std::min(row.count, kPiece)),
        bound_(std::min(row.count, kPiece)) {}

  Status load(std::size_t first, std::size_t count) {
    std::vector<const float*> contributions;
    for (std::size_t rank = 0; rank < values_.size(); ++rank) {
      CGX_TRY(readElements(row_, static_cast<int>(rank), first,
                           std::span(elements_).first(count * codec::bytesOf(row_.dtype))));
      for (std::size_t i = 0; i < count; ++i) values_[rank][i] = elementToFloat(row_.dtype, elements_.data(), i);
      contributions.push_back(values_[rank].data());
    }
    codec::EncodeSpec spec;
    spec.bits = mode_.bits;
    spec.rounding = mode_.rounding;
    codec::allReduceBound(spec, row_.dtype, contributions, count, exact_.data(), bound_.data());
    return {};
  }

  double exact(std::size_t i) const { return exact_[i]; }
  double bound(std::size_t i) const { return mode_.bits == codec::kExactBits ? 0 : bound_[i]; }

  bool permits(std::size_t i, float got) const {
    if (mode_.bits == codec::kExactBits) {
      const float expected = inRankOrder(i);
      return std::isnan(expected) ? std::isnan(got) : got == expected;
    }
    if (std::isnan(exact_[i])) return std::isnan(got);
    if (std::isinf(exact_[i])) return got == static_cast<float>(exact_[i]);
    // An infinite bound stands for a sum that may round to Inf; finite values never add up to NaN.
    return !std::isnan(got) && (std::isinf(bound_[i]) || std::fabs(got - exact_[i]) <= bound_[i]);
  }

 private:
  float inRankOrder(std::size_t i) const {
    float sum = values_.front()[i];
    for (std::size_t rank = 1; rank < values_.size(); ++rank) sum += values_[rank][i];
    std::byte element[4];
    floatToElement(row_.dtype, sum, element, 0);
    return elementToFloat(row_.dtype, element, 0);
  }

  const Row& row_;
  const Mode mode_;
  std::vector<std::vector<float>> values_;  // by rank
  std::vector<std::byte> elements_;
  std::vector<double> exact_;  // fp64 sum
  std::vector<double> bound_;
};

std::string describe(std::size_t element, float got, double exact, double bound) {
  char text[160];
  std::snprintf(text, sizeof text, "element %zu is %.9g, the exact sum is %.9g, permitted is %.3g more or less",
                element, static_cast<double>(got), exact, bound);
  return text;
}

}  // namespace

Result<Verdict> check(const Row& row, int ranks, Mode mode, const std::byte* result,
                      const std::function<void(double)>& progress) {
  Verdict verdict;
  double squaredError = 0;
  double squaredSum = 0;
  Piece piece(row, ranks, mode);
  for (std::size_t first = 0; first < row.count; first += kPiece) {
    const std::size_t count = std::min(kPiece, row.count - first);
    CGX_TRY(piece.load(first, count));
    for (std::size_t i = 0; i < count; ++i) {
      const float got = elementToFloat(row.dtype, result, first + i);
      const double exact = piece.exact(i);
      if (!piece.permits(i, got) && verdict.broken++ == 0)
        verdict.firstBroken = describe(first + i, got, exact, piece.bound(i));
      if (!std::isfinite(exact) || !std::isfinite(got) || std::fabs(exact) > largestOf(row.dtype)) continue;
      squaredError += (got - exact) * (got - exact);
      squaredSum += exact * exact;
    }
    progress(static_cast<double>(first + count) / static_cast<double>(row.count));
  }
  if (squaredError > 0)
    verdict.nmse = squaredSum > 0 ? squaredError / squaredSum : std::numeric_limits<double>::quiet_NaN();
  return verdict;
}

}  // namespace cgx::tool
