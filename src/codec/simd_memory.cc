// Clearing and measuring staging memory. Bound by memory, not by vector width, so the baseline's vectors serve all
// targets.
#include <bit>
#include <cstdint>
#include <cstring>

#include "codec/simd.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace cgx::codec::simd {
namespace {

constexpr std::size_t kLine = 64;

/// Whole cache lines, so that each leaves the core as one transfer.
void clearLines(std::byte* line, std::byte* end) {
#if defined(__x86_64__)
  const __m128i zero = _mm_setzero_si128();
  for (; line != end; line += kLine) {
    for (std::size_t i = 0; i < kLine; i += sizeof(zero)) _mm_stream_si128(reinterpret_cast<__m128i*>(line + i), zero);
  }
  _mm_sfence();  // the memory is handed to other threads, which synchronise with ordinary stores only
#elif defined(__aarch64__)
  for (; line != end; line += kLine) {
    asm volatile("stnp xzr, xzr, [%0]\n stnp xzr, xzr, [%0, 16]\n stnp xzr, xzr, [%0, 32]\n stnp xzr, xzr, [%0, 48]"
                 :
                 : "r"(line)
                 : "memory");
  }
#endif
}

std::uint64_t anyBit(const std::byte* from) {
  std::uint64_t words[kLine / 8];
  std::memcpy(words, from, kLine);
  std::uint64_t any = 0;
  for (const std::uint64_t w : words) any |= w;
  return any;
}

}  // namespace

void clear(void* memory, std::size_t bytes) noexcept {
  auto* const begin = static_cast<std::byte*>(memory);
  const std::size_t toLine = (kLine - std::bit_cast<std::uintptr_t>(begin) % kLine) % kLine;
  if (bytes < toLine + kLine) {
    std::memset(begin, 0, bytes);
    return;
  }
  std::byte* const end = begin + toLine + (bytes - toLine) / kLine * kLine;
  std::memset(begin, 0, toLine);
  clearLines(begin + toLine, end);
  std::memset(end, 0, static_cast<std::size_t>(begin + bytes - end));
}

std::size_t contentElements(DType dtype, const void* in, std::size_t count) noexcept {
  const auto* const begin = static_cast<const std::byte*>(in);
  const std::size_t elementBytes = bytesOf(dtype);
  std::size_t bytes = count * elementBytes;
  while (bytes >= kLine && anyBit(begin + bytes - kLine) == 0) bytes -= kLine;
  while (bytes > 0 && begin[bytes - 1] == std::byte{0}) --bytes;
  return (bytes + elementBytes - 1) / elementBytes;
}

}  // namespace cgx::codec::simd
