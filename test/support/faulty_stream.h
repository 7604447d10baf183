// A byte stream in memory that behaves as badly as a socket may: few bytes a call, "not now" at random, an end or a
// flipped bit at a chosen place. Two of them share a Wire for each direction.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>
#include <random>

#include "transport/byte_stream.h"

namespace cgx::transport {

/// One direction of a connection.
struct Wire {
  std::deque<std::byte> bytes;
  bool closed = false;
};

struct Faults {
  static constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();
  std::size_t bytesPerCall = kNever;
  double pendingShare = 0;          // of calls that answer Pending
  std::size_t resetAfter = kNever;  // bytes read, then Remote for ever
  std::size_t flipBit = kNever;     // bit number in what is written
  std::uint32_t seed = 1;
};

class FaultyStream final : public ByteStream {
 public:
  FaultyStream(Wire& in, Wire& out, Faults faults = {}) : in_(in), out_(out), faults_(faults), random_(faults.seed) {}

  Result<std::size_t> read(std::span<std::byte> into) override {
    ++calls_;
    if (readBytes_ >= faults_.resetAfter) return Status(Code::Remote, "reset", ECONNRESET);
    if (stalls()) return Status::pending();
    if (in_.bytes.empty())
      return in_.closed ? Result<std::size_t>(Status(Code::Remote, "closed", ECONNRESET)) : Status::pending();
    const std::size_t n =
        std::min({into.size(), in_.bytes.size(), faults_.bytesPerCall, faults_.resetAfter - readBytes_});
    std::copy_n(in_.bytes.begin(), n, into.begin());
    in_.bytes.erase(in_.bytes.begin(), in_.bytes.begin() + static_cast<std::ptrdiff_t>(n));
    readBytes_ += n;
    return n;
  }

  Result<std::size_t> write(std::span<const std::byte> from) override {
    ++calls_;
    if (stalls()) return Status::pending();
    const std::size_t n = std::min(from.size(), faults_.bytesPerCall);
    for (const std::byte b : from.first(n)) {
      const bool flipped = faults_.flipBit / 8 == written_++;
      out_.bytes.push_back(flipped ? b ^ static_cast<std::byte>(1u << faults_.flipBit % 8) : b);
    }
    return n;
  }

  std::size_t calls() const { return calls_; }

 private:
  bool stalls() {
    return faults_.pendingShare > 0 && std::uniform_real_distribution<>(0, 1)(random_) < faults_.pendingShare;
  }

  Wire& in_;
  Wire& out_;
  Faults faults_;
  std::mt19937 random_;
  std::size_t readBytes_ = 0;
  std::size_t written_ = 0;
  std::size_t calls_ = 0;
};

}  // namespace cgx::transport
