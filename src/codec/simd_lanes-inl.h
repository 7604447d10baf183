// Vector pieces that the directions of the fast codec share: types, bucket reductions, 16-bit floats. Included once for
// each target, inside its region. Knows nothing of payloads.
#if defined(CGX_SIMD_LANES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef CGX_SIMD_LANES_INL_H
#undef CGX_SIMD_LANES_INL_H
#else
#define CGX_SIMD_LANES_INL_H
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace cgx::codec::simd {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using F = hn::ScalableTag<float>;
using I = hn::ScalableTag<std::int32_t>;
using U = hn::ScalableTag<std::uint32_t>;
using H = hn::Rebind<std::uint16_t, U>;
using VF = hn::Vec<F>;
using VI = hn::Vec<I>;
using VU = hn::Vec<U>;
using VH = hn::Vec<H>;
constexpr std::size_t kLanes = hn::MaxLanes(F());            // 4, 8 or 16
constexpr std::size_t kColumns = wire::kTileLanes / kLanes;  // vectors in a row of a tile
constexpr std::size_t kRow = wire::kTileLanes;
constexpr std::size_t kRows = wire::kTileRows;
constexpr std::size_t kCacheLine = 64;
constexpr std::size_t kBuckets = wire::kTileBuckets;

HWY_INLINE VF asF(VU v) { return hn::BitCast(F(), v); }
HWY_INLINE VU asU(VF v) { return hn::BitCast(U(), v); }
HWY_INLINE VI asI(VU v) { return hn::BitCast(I(), v); }

/// One 32-bit value for each bucket of a tile.
struct alignas(64) PerBucket {
  std::uint32_t bits[kBuckets];
};

struct MaxSigned {
  static HWY_INLINE VU of(VU a, VU b) { return hn::BitCast(U(), hn::Max(asI(a), asI(b))); }
};
struct MaxUnsigned {
  static HWY_INLINE VU of(VU a, VU b) { return hn::Max(a, b); }
};
struct MinUnsigned {
  static HWY_INLINE VU of(VU a, VU b) { return hn::Min(a, b); }
};

/// Transposing reduction: lane i of the result is Op over all lanes of v[i]. Each level halves the number of vectors,
/// so a bucket costs less than one shuffle a level instead of a whole horizontal reduction.
template <class Op>
HWY_INLINE VU merge32(VU a, VU b) {
  return Op::of(hn::InterleaveLower(U(), a, b), hn::InterleaveUpper(U(), a, b));
}
template <class Op>
HWY_INLINE VU merge64(VU a, VU b) {
  const hn::Repartition<std::uint64_t, U> d64;
  const auto a64 = hn::BitCast(d64, a);
  const auto b64 = hn::BitCast(d64, b);
  return Op::of(hn::BitCast(U(), hn::InterleaveLower(d64, a64, b64)),
                hn::BitCast(U(), hn::InterleaveUpper(d64, a64, b64)));
}
template <class Op>
HWY_INLINE VU merge4(const VU* v) {
  return merge64<Op>(merge32<Op>(v[0], v[1]), merge32<Op>(v[2], v[3]));
}
#if HWY_TARGET == HWY_AVX3
template <class Op>
HWY_INLINE VU reduceEach(const VU* v) {
  const VU a = merge4<Op>(v);
  const VU b = merge4<Op>(v + 4);
  const VU c = merge4<Op>(v + 8);
  const VU d = merge4<Op>(v + 12);
  const VU ab = Op::of(VU{_mm512_shuffle_i32x4(a.raw, b.raw, 0x44)}, VU{_mm512_shuffle_i32x4(a.raw, b.raw, 0xEE)});
  const VU cd = Op::of(VU{_mm512_shuffle_i32x4(c.raw, d.raw, 0x44)}, VU{_mm512_shuffle_i32x4(c.raw, d.raw, 0xEE)});
  return Op::of(VU{_mm512_shuffle_i32x4(ab.raw, cd.raw, 0x88)}, VU{_mm512_shuffle_i32x4(ab.raw, cd.raw, 0xDD)});
}
#elif HWY_TARGET == HWY_AVX2
template <class Op>
HWY_INLINE VU reduceEach(const VU* v) {
  const VU a = merge4<Op>(v);
  const VU b = merge4<Op>(v + 4);
  return Op::of(hn::ConcatLowerLower(U(), b, a), hn::ConcatUpperUpper(U(), b, a));
}
#else
template <class Op>
HWY_INLINE VU reduceEach(const VU* v) {
  return merge4<Op>(v);
}
#endif

// 16-bit floats <-> fp32, one vector of elements at a time. Same results as the integer code in format.h: F16C is exact
// to fp32 and IEEE nearest-even back, whatever the environment; NaNs must be canonical before they are narrowed.

template <DType T>
struct Element;

template <>
struct Element<DType::F32> {
  using Type = float;
  static HWY_INLINE VF load(const float* from) { return hn::LoadU(F(), from); }
  static HWY_INLINE void store(VF v, float* to) { hn::StoreU(v, F(), to); }
  static HWY_INLINE VF round(VF v) { return v; }
  static constexpr float kLargest = 3.402823466e+38F;
  static constexpr float kNeverClamped = 0x1p126F;  // values up to here need no saturation
};

template <>
struct Element<DType::BF16> {
  using Type = std::uint16_t;
  static HWY_INLINE VF load(const std::uint16_t* from) {
    return asF(hn::ShiftLeft<16>(hn::PromoteTo(U(), hn::LoadU(H(), from))));
  }
  static HWY_INLINE VU rounded(VF v) {
    const VU bits = asU(v);
    const VU odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(U(), 1));
    return hn::Add(hn::Add(bits, hn::Set(U(), 0x7FFF)), odd);
  }
  static HWY_INLINE void store(VF v, std::uint16_t* to) {
    hn::StoreU(hn::DemoteTo(H(), asI(hn::ShiftRight<16>(rounded(v)))), H(), to);
  }
  static HWY_INLINE VF round(VF v) { return asF(hn::And(rounded(v), hn::Set(U(), 0xFFFF0000U))); }
  static constexpr float kLargest = 0x1.FEp127F;
  static constexpr float kNeverClamped = 0x1p126F;
};

template <>
struct Element<DType::F16> {
  using Type = std::uint16_t;
#if HWY_TARGET == HWY_AVX3
  static HWY_INLINE VF widen(VH v) { return VF{_mm512_cvtph_ps(v.raw)}; }
  static HWY_INLINE VH narrow(VF v) {
    return VH{_mm512_cvtps_ph(v.raw, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
  }
#elif HWY_TARGET == HWY_AVX2
  static HWY_INLINE VF widen(VH v) { return VF{_mm256_cvtph_ps(v.raw)}; }
  static HWY_INLINE VH narrow(VF v) { return VH{_mm256_cvtps_ph(v.raw, _MM_FROUND_TO_NEAREST_INT)}; }
#else
  /// The exponent is moved by an exact multiplication, which also normalises denormals; Inf and NaN get theirs back.
  static HWY_INLINE VF widen(VH v) {
    const VU half = hn::PromoteTo(U(), v);
    const VU sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(U(), 0x8000)));
    const VU magnitude = hn::ShiftLeft<13>(hn::And(half, hn::Set(U(), 0x7FFF)));
    const VU moved = asU(hn::Mul(asF(magnitude), hn::Set(F(), 0x1p112F)));
    const auto special = hn::Gt(asI(magnitude), hn::Set(I(), 0x0F7FFFFF));
    const VU infinite = hn::IfThenElseZero(hn::RebindMask(U(), special), hn::Set(U(), 0x7F800000));
    return asF(hn::Or(sign, hn::Or(moved, infinite)));
  }
  /// Adding 0.5 leaves a denormal half's bits, rounded, in the low end; normal halves are rounded as integers.
  static HWY_INLINE VH narrow(VF v) {
    const VU bits = asU(v);
    const VU sign = hn::ShiftRight<16>(hn::And(bits, hn::Set(U(), 0x80000000U)));
    const VU magnitude = hn::And(bits, hn::Set(U(), 0x7FFFFFFF));
    const VU small = hn::Sub(asU(hn::Add(asF(magnitude), hn::Set(F(), 0.5F))), hn::Set(U(), 0x3F000000));
    const VU odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(U(), 1));
    const VU normal = hn::ShiftRight<13>(hn::Add(hn::Add(magnitude, hn::Set(U(), 0xC8000FFFU)), odd));
    const VU isNaN = asU(hn::BitCast(F(), hn::VecFromMask(I(), hn::Gt(asI(magnitude), hn::Set(I(), 0x7F800000)))));
    const VU large = hn::Or(hn::Set(U(), 0x7C00), hn::And(isNaN, hn::Set(U(), 0x200)));
    const auto isSmall = hn::RebindMask(U(), hn::Lt(asI(magnitude), hn::Set(I(), 0x38800000)));
    const auto isLarge = hn::RebindMask(U(), hn::Gt(asI(magnitude), hn::Set(I(), 0x477FFFFF)));
    const VU half = hn::Or(sign, hn::IfThenElse(isLarge, large, hn::IfThenElse(isSmall, small, normal)));
    return hn::DemoteTo(H(), asI(half));
  }
#endif
  static HWY_INLINE VF load(const std::uint16_t* from) { return widen(hn::LoadU(H(), from)); }
  static HWY_INLINE void store(VF v, std::uint16_t* to) { hn::StoreU(narrow(v), H(), to); }
  static HWY_INLINE VF round(VF v) { return widen(narrow(v)); }
  static constexpr float kLargest = 65504.0F;
  static constexpr float kNeverClamped = 0x1p15F;
};

/// ratioValue() of format.h for codes from 1 on.
HWY_INLINE VF ratioValues(VU code) {
  const VU fine = hn::ShiftLeft<wire::kFineShift>(hn::Add(code, hn::Set(U(), wire::kFineBias)));
  const VU coarse = hn::ShiftLeft<wire::kCoarseShift>(hn::Add(code, hn::Set(U(), wire::kCoarseBias)));
  return asF(hn::Min(fine, coarse));
}

/// Every NaN becomes 0x7FC00000.
HWY_INLINE VF canonical(VF v) { return hn::IfThenElse(hn::Eq(v, v), v, asF(hn::Set(U(), format::kNaN32))); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace cgx::codec::simd
HWY_AFTER_NAMESPACE();

#endif
