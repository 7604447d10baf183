// What a handshake runs on: bytes in order, a few at a time. A socket in the library, a hostile stand-in in the tests.
#pragma once

#include <cstddef>
#include <span>

#include "cgx/status.h"

namespace cgx::transport {

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  /// Bytes read, at least one. Pending: none are there yet. Remote: the peer is gone; System: our side is broken.
  virtual Result<std::size_t> read(std::span<std::byte> into) = 0;
  /// Bytes written, at least one. Pending: no room now. Errors as for read.
  virtual Result<std::size_t> write(std::span<const std::byte> from) = 0;
};

}  // namespace cgx::transport
