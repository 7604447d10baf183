// The checksum of everything on a link: XXH3, 64 bits. Finds accidents (bad NICs, bit flips), not attackers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace cgx::transport {

std::uint64_t checksumOf(std::span<const std::byte> bytes) noexcept;

/// Of a struct whose last field, `T::checksum`, is a checksum over all bytes before it.
template <class T>
std::uint64_t headChecksum(const T& head) noexcept {
  static_assert(offsetof(T, checksum) + sizeof(std::uint64_t) == sizeof(T));
  return checksumOf(std::as_bytes(std::span(&head, 1)).first(offsetof(T, checksum)));
}

}  // namespace cgx::transport
