// Fast encoding, compiled once for each target. Every target writes the reference's bytes (scalar.cc).
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "codec/environment.h"
#include "codec/format.h"
#include "codec/simd.h"
#include "codec/simd_config.h"
#include "codec/simd_payload.h"

// The order of these matters: the target is chosen by the first and known from the second on.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/simd_encode.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "codec/simd_target.h"
#if CGX_SIMD_TARGET
#include "codec/simd_decode-inl.h"
#include "codec/simd_encode-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace cgx::codec::simd {
namespace HWY_NAMESPACE {
namespace {

template <DType T>
struct MemorySource {
  const std::byte* in;
  std::size_t count;
  HWY_INLINE const float* tile(std::size_t tile, float* buffer) const {
    const std::byte* const from = in + tile * kTile * bytesOf(T);
    const std::size_t elements = format::elementsOf(count, tile);
    if (T == DType::F32 && elements == kTile) return reinterpret_cast<const float*>(from);
    widenTile<T>(from, elements, buffer);
    return buffer;
  }
  /// The tile will be read soon. From DRAM this is worth a half more: while tiles are packed, memory would be idle, and
  /// the hardware's own prefetch ends with each page.
  HWY_INLINE void expect(std::size_t tile) const {
    if ((tile + 1) * kTile > count) return;
    const std::byte* const from = in + tile * kTile * bytesOf(T);
    for (std::size_t i = 0; i < kTile * bytesOf(T); i += kCacheLine) __builtin_prefetch(from + i);
  }
  static void encoded(std::size_t, const float*, const PayloadWriter&) {}
};

template <DType T>
HWY_NOINLINE Encoded encodeAs(const EncodeSpec& spec, const void* in, std::size_t count, std::byte* out) {
  MemorySource<T> source{static_cast<const std::byte*>(in), count};
  PayloadWriter writer(T, count, out);
  encodeTiles(spec, source, writer);
  return writer.finish(in);
}

}  // namespace

Encoded encode(const EncodeSpec& spec, DType dtype, const void* in, std::size_t count, std::byte* out) noexcept {
  const DefaultEnvironment environment;
  if (spec.bits == kExactBits) return encodeExact(dtype, in, count, out);
  switch (dtype) {
    case DType::F32:
      return encodeAs<DType::F32>(spec, in, count, out);
    case DType::F16:
      return encodeAs<DType::F16>(spec, in, count, out);
    case DType::BF16:
      return encodeAs<DType::BF16>(spec, in, count, out);
  }
  return {};
}

}  // namespace HWY_NAMESPACE
}  // namespace cgx::codec::simd
HWY_AFTER_NAMESPACE();
#endif
