// Inputs and buffers for codec tests: element patterns that are hard in one way each, and memory that ends at an
// unreadable page.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cgx/codec.h"
#include "support/reference_codec.h"

namespace cgx::test {

using codec::DType;

/// `bytes` of memory between two pages that trap; the end (or the start) touches one.
class GuardedMemory {
 public:
  enum class Edge { End, Start };
  explicit GuardedMemory(std::size_t bytes, std::size_t alignment = 1, Edge edge = Edge::End) : bytes_(bytes) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t body = (bytes + page - 1) / page * page;
    mapped_ = body + 2 * page;
    base_ = static_cast<std::byte*>(mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (body > 0) mprotect(base_ + page, body, PROT_READ | PROT_WRITE);
    std::byte* end = base_ + page + body;
    data_ = edge == Edge::Start ? base_ + page : end - (bytes + alignment - 1) / alignment * alignment;
  }
  ~GuardedMemory() { munmap(base_, mapped_); }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }

 private:
  std::byte* base_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t bytes_;
  std::size_t mapped_ = 0;
};

/// Sanitizers slow the reference down several times: there, suites that sample take every third case.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr std::size_t kSampling = 3;
#else
inline constexpr std::size_t kSampling = 1;
#endif

/// A buffer of elements as bytes; values are rounded to the dtype.
inline std::vector<std::uint8_t> elementsOf(DType dtype, const std::vector<float>& values) {
  std::vector<std::uint8_t> bytes;
  for (const float v : values) {
    const std::uint32_t bits = dtype == DType::F32 ? std::bit_cast<std::uint32_t>(v) : reference::toHalf(dtype, v);
    reference::append(bytes, &bits, codec::bytesOf(dtype));
  }
  return bytes;
}

/// How a test buffer is filled.
enum class Pattern {
  Normal,
  HeavyTail,
  Sparse,
  Specials,
  AnyBits,
  Constant,
  ZeroTiles,
  WideRange,
  NearMax,
  Tiny,
  Denormals,
  Zero
};
inline constexpr Pattern kPatterns[] = {Pattern::Normal,  Pattern::HeavyTail, Pattern::Sparse,    Pattern::Specials,
                                        Pattern::AnyBits, Pattern::Constant,  Pattern::ZeroTiles, Pattern::WideRange,
                                        Pattern::NearMax, Pattern::Tiny,      Pattern::Denormals, Pattern::Zero};

inline float patternValue(Pattern pattern, std::mt19937_64& random, std::size_t i) {
  std::normal_distribution<float> normal;
  switch (pattern) {
    case Pattern::Normal:
      return normal(random);
    case Pattern::HeavyTail:
      return std::exp(3 * normal(random)) * (random() % 2 == 0 ? 1.0F : -1.0F);
    case Pattern::Sparse:
      return random() % 8 == 0 ? normal(random) : random() % 2 == 0 ? 0.0F : -0.0F;
    case Pattern::Specials: {
      const unsigned kind = i / 512 % 3 == 1 ? static_cast<unsigned>(random() % 64) : 63;
      if (kind == 0) return std::numeric_limits<float>::infinity();
      if (kind == 1) return -std::numeric_limits<float>::infinity();
      if (kind == 2) return std::bit_cast<float>(0xFF812345U);  // a signalling NaN
      return normal(random);
    }
    case Pattern::AnyBits:
      return std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    case Pattern::Constant:
      return i / 512 % 2 == 0 ? -0.3F : 7.0F;
    case Pattern::ZeroTiles:
      return i / 512 % 2 == 0 ? -0.0F : normal(random);
    case Pattern::WideRange:
      return std::ldexp(normal(random), -static_cast<int>(i / 32 % 16 * (i / 512 % 4)));
    case Pattern::NearMax:
      return normal(random) < 0 ? -3.4e38F : 65504.0F * (0.99F + 0.02F * static_cast<float>(random() % 64) / 64);
    case Pattern::Tiny:
      return std::ldexp(normal(random), i / 512 % 2 == 0 ? -82 : -79);
    case Pattern::Denormals: {  // beside steps that are not much larger, or alone
      const std::size_t tile = i / 512 % 3;
      const int beside = i % 512 < 32 ? -79 : i % 32 == 0 ? -113 : -127;
      return std::ldexp(normal(random), tile == 2 ? -140 : tile == 1 ? -20 : beside);
    }
    case Pattern::Zero:
      return 0;
  }
  return 0;
}

inline std::vector<std::uint8_t> fill(Pattern pattern, DType dtype, std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed * 977 + static_cast<std::uint64_t>(pattern));
  if (pattern == Pattern::AnyBits) {
    std::vector<std::uint8_t> bytes(count * codec::bytesOf(dtype));
    for (auto& b : bytes) b = static_cast<std::uint8_t>(random());
    return bytes;
  }
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = patternValue(pattern, random, i);
  // A 16-bit signalling NaN must be made from bits; elementsOf() makes quiet ones.
  return elementsOf(dtype, values);
}

/// Encodes through `kernels` between guard pages.
inline reference::Message encodeWith(const codec::Kernels& kernels, const codec::EncodeSpec& spec, DType dtype,
                                     const std::vector<std::uint8_t>& elements, codec::Encoded* told = nullptr) {
  const std::size_t count = elements.size() / codec::bytesOf(dtype);
  const GuardedMemory in(elements.size(), codec::bytesOf(dtype));
  const GuardedMemory out(codec::payloadCapacity(dtype, count), 64);
  if (!elements.empty()) std::memcpy(in.data(), elements.data(), elements.size());
  std::memset(out.data(), 0xA5, out.size());
  const codec::Encoded encoded = kernels.encode(spec, dtype, in.data(), count, out.data());
  if (told != nullptr) *told = encoded;
  reference::Message message{encoded.form, {}};
  reference::append(message.bytes, out.data(), encoded.bytes);
  return message;
}

/// A message in memory that ends at a guard page.
class GuardedPayload {
 public:
  explicit GuardedPayload(const reference::Message& message) : form_(message.form), memory_(message.bytes.size()) {
    if (!message.bytes.empty()) std::memcpy(memory_.data(), message.bytes.data(), message.bytes.size());
  }
  codec::Payload payload() const { return {form_, {memory_.data(), memory_.size()}}; }

 private:
  codec::Form form_;
  GuardedMemory memory_;
};

inline reference::Bytes decodeWith(const codec::Kernels& kernels, const reference::Message& message, DType dtype,
                                   std::size_t count) {
  const GuardedPayload payload(message);
  const GuardedMemory out(count * codec::bytesOf(dtype), codec::bytesOf(dtype));
  kernels.decode(payload.payload(), dtype, count, out.data());
  reference::Bytes bytes;
  reference::append(bytes, out.data(), out.size());
  return bytes;
}

inline const char* nameOf(DType dtype) { return dtype == DType::F32 ? "F32" : dtype == DType::F16 ? "F16" : "BF16"; }
inline constexpr DType kDTypes[] = {DType::F32, DType::F16, DType::BF16};
inline constexpr int kWidths[] = {1, 2, 3, 4, 5, 6, 7, 8, codec::kExactBits};

}  // namespace cgx::test
