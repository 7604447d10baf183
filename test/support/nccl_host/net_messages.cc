// What the messages of the net half hold: drawn from the seed, so that both ends know it.
#include <algorithm>
#include <cstring>

#include "support/nccl_host/net_peer.h"

namespace cgx::host {
namespace {

std::uint64_t mix(std::uint64_t x) noexcept {  // splitmix64
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

}  // namespace

std::uint64_t messageKey(const NetTraffic& t, int source, int index) noexcept {
  return mix(t.seed * 0x1000193 + static_cast<std::uint64_t>(source) * 0x10001 + static_cast<std::uint64_t>(index));
}

std::size_t messageBytes(const NetTraffic& t, int source, int index) {
  if (!t.sizes.empty()) return t.sizes[static_cast<std::size_t>(index) % t.sizes.size()];
  const std::uint64_t r = messageKey(t, source, index);
  switch (r % 8) {
    case 0:
      return 0;
    case 1:
      return 1;
    case 2:
      return t.maxBytes;
    case 3:
      return r / 8 % std::min<std::size_t>(t.maxBytes + 1, 64);
    default:
      return r / 8 % (t.maxBytes + 1);
  }
}

void fillMessage(const NetTraffic& t, int source, int index, std::span<std::byte> out) {
  std::uint64_t word = messageKey(t, source, index);
  for (std::size_t i = 0; i < out.size(); i += 8) {
    std::memcpy(out.data() + i, &word, std::min<std::size_t>(8, out.size() - i));
    word = word * 0x5851F42D4C957F2DULL + 0x14057B7EF767814FULL;
  }
}

}  // namespace cgx::host
