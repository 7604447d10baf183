// Rows of made-up values that look like gradients: layers of very different size, a part that all ranks share, a part
// of their own.
#include <cmath>
#include <cstdint>

#include "input.h"
#include "numbers.h"
#include "sizes.h"

namespace cgx::tool {
namespace {

constexpr std::size_t kLayer = 8192;          // elements with one scale
constexpr std::uint64_t kShared = ~0ull;      // the "rank" whose noise everybody adds
constexpr std::uint64_t kScales = ~0ull - 1;  // the "rank" that the layers' scales are drawn from

/// splitmix64's output function: a good 64-bit hash of a counter.
constexpr std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

/// Nearly normal, variance one: four uniform 16-bit numbers added up.
float normal(std::uint64_t rank, std::uint64_t index) {
  const std::uint64_t bits = mix(mix(rank + 1) + (index + 1) * 0x9e3779b97f4a7c15ull);
  const auto sum =
      static_cast<std::int32_t>((bits & 0xffff) + ((bits >> 16) & 0xffff) + ((bits >> 32) & 0xffff) + (bits >> 48));
  return static_cast<float>(sum - 131070) * (1.7320508f / 65536.0f);
}

class Synthetic final : public Input {
 public:
  Status read(int rank, std::size_t first, std::span<float> out) const override {
    float scale = 0;
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::size_t index = first + i;
      if (i == 0 || index % kLayer == 0)
        scale = std::ldexp(1.0f, -4 - static_cast<int>(mix(kScales + index / kLayer) % 12));
      out[i] = scale * (0.3f * normal(kShared, index) + normal(static_cast<std::uint64_t>(rank), index));
    }
    return {};
  }
};

}  // namespace

Result<std::vector<Row>> syntheticRows(const std::string& sizes, DType dtype) {
  Result<std::vector<std::size_t>> list = parseSizes(sizes);
  if (!list.ok()) return list.status();
  std::vector<Row> rows;
  for (const std::size_t bytes : list.value()) {
    Row row;
    row.count = std::max<std::size_t>(1, bytes / codec::bytesOf(dtype));
    row.dtype = dtype;
    row.input = std::make_unique<Synthetic>();
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace cgx::tool
