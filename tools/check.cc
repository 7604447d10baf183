#include "check.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <vector>

#include "numbers.h"

namespace cgx::tool {
namespace {

constexpr std::size_t kPiece = 128 * codec::kTile;  // elements at a time; whole buckets

struct Errors {
  double squaredError = 0;
  double squaredSum = 0;
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
  const std::size_t bytesEach = codec::bytesOf(row.dtype);
  const std::size_t most = std::min(row.count, kPiece);
  std::vector<double> exact(most);
  std::vector<float> ordered(most);
  std::vector<double> magnitude(most);
  std::vector<double> bound(most);
  std::vector<std::byte> elements(most * bytesEach);
  std::vector<float> values(most);
  Verdict verdict;
  Errors errors;
  for (std::size_t first = 0; first < row.count; first += kPiece) {
    const std::size_t some = std::min(kPiece, row.count - first);
    BoundedSum sum(mode, row.dtype, std::span(exact).first(some), std::span(ordered).first(some),
                   std::span(magnitude).first(some), std::span(bound).first(some));
    for (int rank = 0; rank < ranks; ++rank) {
      CGX_TRY(readElements(row, rank, first, std::span(elements).first(some * bytesEach)));
      for (std::size_t i = 0; i < some; ++i) values[i] = elementToFloat(row.dtype, elements.data(), i);
      sum.add(std::span(values).first(some));
    }
    sum.finish();
    for (std::size_t i = 0; i < some; ++i) {
      const float got = elementToFloat(row.dtype, result, first + i);
      if (!sum.permits(i, got) && verdict.broken++ == 0)
        verdict.firstBroken = describe(first + i, got, exact[i], bound[i]);
      if (!std::isfinite(exact[i]) || !std::isfinite(got) || std::fabs(exact[i]) > largestOf(row.dtype)) continue;
      errors.squaredError += (got - exact[i]) * (got - exact[i]);
      errors.squaredSum += exact[i] * exact[i];
    }
    progress(static_cast<double>(first + some) / static_cast<double>(row.count));
  }
  if (errors.squaredError > 0)
    verdict.nmse =
        errors.squaredSum > 0 ? errors.squaredError / errors.squaredSum : std::numeric_limits<double>::quiet_NaN();
  return verdict;
}

}  // namespace cgx::tool
