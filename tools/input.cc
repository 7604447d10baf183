#include "input.h"

#include <algorithm>

#include "numbers.h"

namespace cgx::tool {

Status readElements(const Row& row, int rank, std::size_t first, std::span<std::byte> out) {
  const std::size_t count = out.size() / codec::bytesOf(row.dtype);
  constexpr std::size_t kPiece = std::size_t{1} << 16;
  std::vector<float> values(std::min(count, kPiece));
  for (std::size_t at = 0; at < count; at += kPiece) {
    const std::size_t some = std::min(kPiece, count - at);
    CGX_TRY(row.input->read(rank, first + at, std::span(values).first(some)));
    for (std::size_t i = 0; i < some; ++i) floatToElement(row.dtype, values[i], out.data(), at + i);
  }
  return {};
}

}  // namespace cgx::tool
