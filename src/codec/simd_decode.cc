// Fast decoding, compiled once for each target. Every target gives the reference's values (scalar.cc).
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
#define HWY_TARGET_INCLUDE "codec/simd_decode.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "codec/simd_target.h"
#if CGX_SIMD_TARGET
#include "codec/simd_decode-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace cgx::codec::simd {
namespace HWY_NAMESPACE {
namespace {

/// Memory that a later tile will be written to, or added to, starts on its way. From DRAM this is worth a third to a
/// half; the codes themselves are few and in order.
template <class Type>
HWY_INLINE void expect(const Type* to, std::size_t elements) {
  for (std::size_t i = 0; i < elements; i += kCacheLine / sizeof(Type)) __builtin_prefetch(to + i);
}

template <DType T, class Sink>
HWY_NOINLINE void takeAll(const Payload& payload, std::size_t count, typename Sink::Type* out) {
  PayloadReader reader(Contribution{nullptr, payload}, T, count);
  const std::size_t tiles = format::tilesOf(count);
  constexpr std::size_t kAhead = 4;
  for (std::size_t tile = 0; tile < tiles; ++tile) {
    const std::size_t elements = format::elementsOf(count, tile);
    if (tile + kAhead < tiles) expect(out + (tile + kAhead) * kTile, format::elementsOf(count, tile + kAhead));
    takeTile<T, Sink>(reader.next(elements), elements, out + tile * kTile);
  }
}

template <DType T>
void decodeAs(const Payload& payload, std::size_t count, void* out) {
  takeAll<T, Store<T>>(payload, count, static_cast<typename Element<T>::Type*>(out));
}

}  // namespace

void decode(const Payload& payload, DType dtype, std::size_t count, void* out) noexcept {
  const DefaultEnvironment environment;
  switch (dtype) {
    case DType::F32:
      return decodeAs<DType::F32>(payload, count, out);
    case DType::F16:
      return decodeAs<DType::F16>(payload, count, out);
    case DType::BF16:
      return decodeAs<DType::BF16>(payload, count, out);
  }
}

void decodeAdd(const Payload& payload, DType dtype, std::size_t count, float* sum) noexcept {
  const DefaultEnvironment environment;
  switch (dtype) {
    case DType::F32:
      return takeAll<DType::F32, Add>(payload, count, sum);
    case DType::F16:
      return takeAll<DType::F16, Add>(payload, count, sum);
    case DType::BF16:
      return takeAll<DType::BF16, Add>(payload, count, sum);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace cgx::codec::simd
HWY_AFTER_NAMESPACE();
#endif
