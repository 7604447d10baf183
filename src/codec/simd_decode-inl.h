// Decoding of one tile, and what is done with its values: stored in a dtype or added to fp32 sums. Included once for
// each target. The order of every fp32 operation is the reference's (scalar.cc).
#if defined(CGX_SIMD_DECODE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef CGX_SIMD_DECODE_INL_H
#undef CGX_SIMD_DECODE_INL_H
#else
#define CGX_SIMD_DECODE_INL_H
#endif

#include "codec/simd_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace cgx::codec::simd {
namespace HWY_NAMESPACE {
namespace {

/// What happens to a vector of decoded values.
template <DType T>
struct Store {
  using Type = typename Element<T>::Type;
  using E = Element<T>;
  static constexpr bool kReads = false;
  static HWY_INLINE void take(VF v, Type* to) { E::store(v, to); }
  static HWY_INLINE void takeExact(VF v, Type* to) { E::store(canonical(v), to); }
};
struct Add {
  using Type = float;
  using E = Element<DType::F32>;
  static constexpr bool kReads = true;
  static HWY_INLINE void take(VF v, float* to) { hn::StoreU(hn::Add(hn::LoadU(F(), to), v), F(), to); }
  static HWY_INLINE void takeExact(VF v, float* to) { hn::StoreU(canonical(hn::Add(hn::LoadU(F(), to), v)), F(), to); }
};

/// A code becomes a level as a float: placed in the mantissa of 2^23 and the offset subtracted, both with the bucket's
/// sign, so that level 0 is +0 in either.
struct alignas(64) Steps {
  float step[kBuckets];
  std::uint32_t base[kBuckets];  // +-2^23
  float offset[kBuckets];        // +-(2^23 + H - 1)
};

HWY_INLINE void stepsOf(int bits, float scale, const std::uint8_t* bucketBytes, Steps& out) {
  const hn::Rebind<std::uint8_t, U> d8;
  const VU origin = hn::Set(U(), 0x4B000000U);
  const VU shifted = hn::Set(U(), 0x4B000000U + static_cast<std::uint32_t>(format::levelsOf(bits)) - 1U);
  for (std::size_t c = 0; c < kColumns; ++c) {
    const VU byte = hn::PromoteTo(U(), hn::LoadU(d8, bucketBytes + c * kLanes));
    const VU code = hn::And(byte, hn::Set(U(), wire::kRatioMask));
    const VU sign = hn::ShiftLeft<24>(hn::AndNot(hn::Set(U(), wire::kRatioMask), byte));
    const VF value = hn::IfThenElseZero(hn::RebindMask(F(), hn::Gt(asI(code), hn::Zero(I()))), ratioValues(code));
    hn::Store(hn::Mul(value, hn::Set(F(), scale)), F(), out.step + c * kLanes);
    hn::Store(hn::Or(origin, sign), U(), out.base + c * kLanes);
    hn::Store(asF(hn::Or(shifted, sign)), F(), out.offset + c * kLanes);
  }
}

/// The code of row `kRowIndex` in the low B bits of each lane; what is above belongs to other rows.
template <int B, std::size_t kRowIndex>
HWY_INLINE VU codeOf(const VU* words) {
  constexpr std::size_t kBit = kRowIndex * B;
  constexpr std::size_t kWord = kBit / 32;
  constexpr int kShift = static_cast<int>(kBit % 32);
  const VU low = hn::ShiftRight<kShift>(words[kWord]);
  if constexpr (kShift + B > 32) {
    return hn::Or(low, hn::ShiftLeft<32 - kShift>(words[kWord + 1]));
  } else {
    return low;
  }
}

#if HWY_TARGET == HWY_AVX3
/// Up to 4 bits a bucket's values fit in one register: a code is looked up, whatever is above its bits having its own
/// copy of the table.
struct alignas(64) Levels {
  float of[2][16];  // by sign
};
template <int B>
constexpr Levels levels() {
  Levels l{};
  for (std::uint32_t code = 0; code < 16; ++code) {
    l.of[0][code] = static_cast<float>(format::levelOf(B, false, code % (1U << B)));
    l.of[1][code] = static_cast<float>(format::levelOf(B, true, code % (1U << B)));
  }
  return l;
}
template <int B>
inline constexpr Levels kLevels = levels<B>();

template <int B>
struct Bucket {
  static constexpr bool kTable = B <= 4;
  VF table;
  VF step;
  VU base;
  VF offset;
  HWY_INLINE Bucket(const Steps& steps, const std::uint8_t* bytes, std::size_t k) {
    step = hn::Set(F(), steps.step[k]);
    if constexpr (kTable) {
      table = hn::Mul(hn::Load(F(), kLevels<B>.of[bytes[k] >> 7]), step);
      if constexpr (B == 1) table = hn::Add(table, hn::Zero(F()));
    } else {
      base = hn::Set(U(), steps.base[k]);
      offset = hn::Set(F(), steps.offset[k]);
    }
  }
  HWY_INLINE VF value(VU code) const {
    if constexpr (kTable) {
      return VF{_mm512_permutexvar_ps(code.raw, table.raw)};
    } else {
      const VF level = hn::Sub(asF(hn::OrAnd(base, code, hn::Set(U(), (1U << B) - 1))), offset);
      return hn::Mul(level, step);
    }
  }
};
#else
template <int B>
struct Bucket {
  VF step;
  VU base;
  VF offset;
  HWY_INLINE Bucket(const Steps& steps, const std::uint8_t*, std::size_t k) {
    step = hn::Set(F(), steps.step[k]);
    base = hn::Set(U(), steps.base[k]);
    offset = hn::Set(F(), steps.offset[k]);
  }
  HWY_INLINE VF value(VU code) const {
    if constexpr (B == 1) {  // code 1 keeps the bucket's sign, code 0 turns it over
      const VU sign = hn::And(hn::Xor(base, hn::ShiftLeft<31>(hn::Not(code))), hn::Set(U(), 0x80000000U));
      return hn::Add(asF(hn::Xor(asU(step), sign)), hn::Zero(F()));
    } else {
      const VF level = hn::Sub(asF(hn::OrAnd(base, code, hn::Set(U(), (1U << B) - 1))), offset);
      return hn::Mul(level, step);
    }
  }
};
#endif

template <int B, class Sink, std::size_t... K>
HWY_INLINE void unpackColumn(const std::uint32_t* in, const Steps& steps, const std::uint8_t* bytes,
                             typename Sink::Type* out, std::index_sequence<K...>) {
  VU words[B];
  for (std::size_t w = 0; w < B; ++w) words[w] = hn::LoadU(U(), in + w * kRow);
  const auto pair = [&]<std::size_t k>(std::integral_constant<std::size_t, k>) HWY_ATTR {
    const Bucket<B> bucket(steps, bytes, k);
    Sink::take(bucket.value(codeOf<B, 2 * k>(words)), out + 2 * k * kRow);
    Sink::take(bucket.value(codeOf<B, 2 * k + 1>(words)), out + (2 * k + 1) * kRow);
  };
  (pair(std::integral_constant<std::size_t, K>()), ...);
}

/// All 512 values of a coded tile; no value may need saturation.
template <int B, class Sink>
HWY_NOINLINE void unpackTile(const std::byte* codes, const Steps& steps, const std::uint8_t* bytes,
                             typename Sink::Type* out) {
  const std::uint32_t* const words = reinterpret_cast<const std::uint32_t*>(codes);
  for (std::size_t c = 0; c < kColumns; ++c) {
    unpackColumn<B, Sink>(words + c * kLanes, steps, bytes, out + c * kLanes, std::make_index_sequence<kBuckets>());
  }
}

template <class Sink>
using UnpackTile = void (*)(const std::byte* codes, const Steps& steps, const std::uint8_t* bytes,
                            typename Sink::Type* out);
template <class Sink>
inline constexpr UnpackTile<Sink> kUnpackTile[] = {unpackTile<1, Sink>, unpackTile<2, Sink>, unpackTile<3, Sink>,
                                                   unpackTile<4, Sink>, unpackTile<5, Sink>, unpackTile<6, Sink>,
                                                   unpackTile<7, Sink>, unpackTile<8, Sink>};

/// Gives `elements` values to the sink; a partial tile goes through a whole one.
template <class Sink, bool kExact>
HWY_NOINLINE void deliver(const float* x, std::size_t elements, typename Sink::Type* out) {
  alignas(64) typename Sink::Type whole[kTile];
  typename Sink::Type* to = out;
  if (elements != kTile) {
    to = whole;
    if (Sink::kReads) std::memcpy(whole, out, elements * sizeof(*out));
    if (Sink::kReads) std::memset(whole + elements, 0, (kTile - elements) * sizeof(*out));
  }
  for (std::size_t i = 0; i < kTile; i += kLanes) {
    if constexpr (kExact) {
      Sink::takeExact(hn::LoadU(F(), x + i), to + i);
    } else {
      Sink::take(hn::LoadU(F(), x + i), to + i);
    }
  }
  if (elements != kTile) std::memcpy(out, whole, elements * sizeof(*out));
}

/// 512 elements as fp32, +0 past the end of a partial tile.
template <DType T>
HWY_INLINE void widenTile(const std::byte* from, std::size_t elements, float* x) {
  using Type = typename Element<T>::Type;
  alignas(64) Type whole[kTile];
  const Type* in = reinterpret_cast<const Type*>(from);
  if (elements != kTile) {
    std::memcpy(whole, from, elements * sizeof(Type));
    std::memset(whole + elements, 0, (kTile - elements) * sizeof(Type));
    in = whole;
  }
  for (std::size_t i = 0; i < kTile; i += kLanes) hn::StoreU(Element<T>::load(in + i), F(), x + i);
}

template <DType T, class Sink>
HWY_NOINLINE void takeUnusual(const PayloadTile& tile, const Steps& steps, std::size_t elements,
                              typename Sink::Type* out) {
  if (tile.kind == wire::kRawTile && elements == kTile) {
    const auto* const from = reinterpret_cast<const typename Element<T>::Type*>(tile.data);
    for (std::size_t i = 0; i < kTile; i += kLanes) Sink::takeExact(Element<T>::load(from + i), out + i);
    return;
  }
  alignas(64) float x[kTile];
  if (tile.kind == wire::kRawTile) {
    widenTile<T>(tile.data, elements, x);
    return deliver<Sink, true>(x, elements, out);
  }
  if (tile.kind == wire::kZeroTile) {
    std::memset(x, 0, sizeof(x));
    return deliver<Sink, false>(x, elements, out);
  }
  kUnpackTile<Store<DType::F32>>[tile.kind - 1](tile.data, steps, tile.buckets, x);
  const VF finite = hn::Set(F(), Element<DType::F32>::kLargest);
  const VF largest = hn::Set(F(), Sink::E::kLargest);
  for (std::size_t i = 0; i < kTile; i += kLanes) {
    const VF v = hn::Min(hn::Max(hn::Load(F(), x + i), hn::Neg(finite)), finite);
    hn::Store(hn::Min(hn::Max(v, hn::Neg(largest)), largest), F(), x + i);
  }
  deliver<Sink, false>(x, elements, out);
}

/// A tile of a payload into a sink. T is the payload's dtype.
template <DType T, class Sink>
HWY_INLINE void takeTile(const PayloadTile& tile, std::size_t elements, typename Sink::Type* out) {
  Steps steps;
  if (isCoded(tile.kind)) {
    stepsOf(tile.kind, tile.scale, tile.buckets, steps);
    const bool fits = tile.scale * static_cast<float>(format::levelsOf(tile.kind)) <= Sink::E::kNeverClamped;
    if (fits && elements == kTile) return kUnpackTile<Sink>[tile.kind - 1](tile.data, steps, tile.buckets, out);
  }
  takeUnusual<T, Sink>(tile, steps, elements, out);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace cgx::codec::simd
HWY_AFTER_NAMESPACE();

#endif
