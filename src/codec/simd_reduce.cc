// The owner's fused pass, compiled once for each target: while a tile is in the cache, all parts are decoded and added,
// the sum is rounded and encoded, and what the others will decode is written. Same bytes as the reference's
// (scalar.cc).
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "codec/environment.h"
#include "codec/format.h"
#include "codec/scalar.h"
#include "codec/simd.h"
#include "codec/simd_config.h"
#include "codec/simd_payload.h"

// The order of these matters: the target is chosen by the first and known from the second on.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/simd_reduce.cc"
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

constexpr std::size_t kMaxParts = 128;  // more are left to the reference: no communicator is that large

template <DType T>
class SumSource {
 public:
  using Type = typename Element<T>::Type;

  SumSource(std::span<const Contribution> parts, std::size_t count, void* own) noexcept
      : count_(count), parts_(parts.size()), own_(static_cast<Type*>(own)) {
    for (std::size_t p = 0; p < parts_; ++p) readers_[p] = PayloadReader(parts[p], T, count);
  }

  /// The tile's sum in rank order, rounded to the dtype, NaNs canonical; +0 past the end.
  HWY_INLINE const float* tile(std::size_t tile, float* sum) {
    const std::size_t elements = format::elementsOf(count_, tile);
    if (parts_ == 0) std::memset(sum, 0, kTile * sizeof(float));
    for (std::size_t p = 0; p < parts_; ++p) {
      const PayloadTile part = readers_[p].next(elements);
      p == 0 ? takeTile<T, Store<DType::F32>>(part, elements, sum) : takeTile<T, Add>(part, elements, sum);
    }
    std::memset(sum + elements, 0, (kTile - elements) * sizeof(float));
    // NaNs are canonical already: only exact values make them, and takeExact() sees to it.
    if constexpr (T != DType::F32) {
      for (std::size_t i = 0; i < kTile; i += kLanes)
        hn::Store(Element<T>::round(hn::Load(F(), sum + i)), F(), sum + i);
    }
    return sum;
  }

  static void expect(std::size_t) {}

  /// Writes the tile's own values. Until it is certain that the payload will not travel raw, these are the exact sums;
  /// then everything up to there is decoded. Usually certain after the first few tiles.
  HWY_INLINE void encoded(std::size_t tile, const float* sum, const PayloadWriter& writer) {
    const std::size_t elements = format::elementsOf(count_, tile);
    if (!certain_) {
      deliver<Store<T>, true>(sum, elements, own_ + tile * kTile);
      certain_ = writer.smallerThanRaw();
      written_ = writer.written();
      if (!certain_) return;
      for (std::size_t i = 0; i <= tile; ++i) takeOwn(i);
      return;
    }
    if (!takeOwn(tile)) deliver<Store<T>, true>(sum, elements, own_ + tile * kTile);
  }

  bool certain() const { return certain_; }

  /// Exact sums, nothing encoded.
  void sumAll() {
    alignas(64) float sum[kTile];
    for (std::size_t i = 0; i < format::tilesOf(count_); ++i) {
      deliver<Store<T>, true>(tile(i, sum), format::elementsOf(count_, i), own_ + i * kTile);
    }
  }

 private:
  /// False: the tile travels raw.
  HWY_INLINE bool takeOwn(std::size_t tile) {
    const std::size_t elements = format::elementsOf(count_, tile);
    const PayloadTile coded = written_.next(elements);
    if (coded.kind == wire::kRawTile) return false;
    takeTile<T, Store<T>>(coded, elements, own_ + tile * kTile);
    return true;
  }

  PayloadReader readers_[kMaxParts];
  PayloadReader written_;
  std::size_t count_;
  std::size_t parts_;
  Type* own_;
  bool certain_ = false;
};

template <DType T>
HWY_NOINLINE Encoded reduceAs(const EncodeSpec& spec, std::span<const Contribution> parts, std::size_t count,
                              std::byte* out, void* own) {
  SumSource<T> source(parts, count, own);
  if (spec.bits == kExactBits) {
    source.sumAll();
    return encodeExact(T, own, count, out);
  }
  PayloadWriter writer(T, count, out);
  encodeTiles(spec, source, writer);
  const Encoded encoded = writer.finish(own);
  if (!source.certain() && encoded.form != Form::Raw)
    decode(Payload{encoded.form, {out, encoded.bytes}}, T, count, own);
  return encoded;
}

}  // namespace

Encoded reduce(const EncodeSpec& spec, DType dtype, std::span<const Contribution> parts, std::size_t count,
               std::byte* out, void* own) noexcept {
  if (parts.size() > kMaxParts) return kScalar.reduce(spec, dtype, parts, count, out, own);
  const DefaultEnvironment environment;
  switch (dtype) {
    case DType::F32:
      return reduceAs<DType::F32>(spec, parts, count, out, own);
    case DType::F16:
      return reduceAs<DType::F16>(spec, parts, count, out, own);
    case DType::BF16:
      return reduceAs<DType::BF16>(spec, parts, count, out, own);
  }
  return {};
}

}  // namespace HWY_NAMESPACE
}  // namespace cgx::codec::simd
HWY_AFTER_NAMESPACE();
#endif
