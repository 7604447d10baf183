// The only file that sees xxhash, compiled into it, so that the library exports none of its names.
#include "transport/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace cgx::transport {

std::uint64_t checksumOf(std::span<const std::byte> bytes) noexcept { return XXH3_64bits(bytes.data(), bytes.size()); }

}  // namespace cgx::transport
