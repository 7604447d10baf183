// Encoding of one tile that lies in the cache as fp32: bucket extremes, scale and bucket bytes, rounding, packing.
// Included once for each target. The order of every fp32 operation is the reference's (scalar.cc); knows nothing of
// payloads and cursors.
#if defined(CGX_SIMD_ENCODE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef CGX_SIMD_ENCODE_INL_H
#undef CGX_SIMD_ENCODE_INL_H
#else
#define CGX_SIMD_ENCODE_INL_H
#endif

#include "codec/simd_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace cgx::codec::simd {
namespace HWY_NAMESPACE {
namespace {

/// Largest bits as signed and as unsigned integers: the largest positive magnitude and the largest negative one with
/// its sign bit. Integers order NaN above Inf above all finite values, so one pass finds extremes and non-finite
/// elements alike.
struct Extremes {
  PerBucket asSigned;
  PerBucket asUnsigned;
};

HWY_INLINE void extremesOf(const float* x, Extremes& out) {
  for (std::size_t first = 0; first < kBuckets; first += kLanes) {
    VU high[kLanes];
    VU low[kLanes];
    for (std::size_t k = 0; k < kLanes; ++k) {
      const float* bucket = x + (first + k) * kBucket;
      high[k] = low[k] = asU(hn::LoadU(F(), bucket));
      for (std::size_t i = kLanes; i < kBucket; i += kLanes) {
        const VU v = asU(hn::LoadU(F(), bucket + i));
        high[k] = MaxSigned::of(high[k], v);
        low[k] = MaxUnsigned::of(low[k], v);
      }
    }
    hn::Store(reduceEach<MaxSigned>(high), U(), out.asSigned.bits + first);
    hn::Store(reduceEach<MaxUnsigned>(low), U(), out.asUnsigned.bits + first);
  }
}

/// Smallest magnitude of each bucket; only one-bit nearest codes need it.
HWY_NOINLINE void smallestOf(const float* x, PerBucket& out) {
  for (std::size_t first = 0; first < kBuckets; first += kLanes) {
    VU least[kLanes];
    for (std::size_t k = 0; k < kLanes; ++k) {
      least[k] = hn::Set(U(), 0x7FFFFFFF);
      for (std::size_t i = 0; i < kBucket; i += kLanes) {
        const VU v = asU(hn::LoadU(F(), x + (first + k) * kBucket + i));
        least[k] = MinUnsigned::of(least[k], hn::And(v, hn::Set(U(), 0x7FFFFFFF)));
      }
    }
    hn::Store(reduceEach<MinUnsigned>(least), U(), out.bits + first);
  }
}

/// ratioCode() of format.h.
HWY_INLINE VI ratioCodes(VU ratio) {
  const VU fine = hn::ShiftRight<wire::kFineShift>(hn::Add(ratio, hn::Set(U(), (1U << wire::kFineShift) - 1)));
  const VU coarse = hn::ShiftRight<wire::kCoarseShift>(hn::Add(ratio, hn::Set(U(), (1U << wire::kCoarseShift) - 1)));
  return hn::Max(asI(hn::Sub(fine, hn::Set(U(), wire::kFineBias))),
                 asI(hn::Sub(coarse, hn::Set(U(), wire::kCoarseBias))));
}

/// What rounding and packing need to know of a tile.
struct alignas(64) TilePlan {
  float inverse[kBuckets];  // 1 / step with the bucket's sign; 0 for a bucket of zeros
  float scale;
  std::uint8_t kind;
};

/// Kind, scale and bucket bytes (16, written even when the tile turns out not to be coded).
HWY_INLINE void planTile(int bits, const Extremes& extremes, const PerBucket* smallest, TilePlan& plan,
                         std::uint8_t* bucketBytes) {
  const VU zero = hn::Zero(U());
  VU longer[kColumns];
  VF step[kColumns];
  VU negative[kColumns];  // 0x80 where the negative side is the longer one
  VU anyLonger = zero;
  VF largestStep = hn::Zero(F());
  const VF longerFactor = hn::Set(F(), format::longerFactor(bits));
  const VF shorterFactor = hn::Set(F(), format::shorterFactor(bits));
  for (std::size_t c = 0; c < kColumns; ++c) {
    const VU high = MaxSigned::of(hn::Load(U(), extremes.asSigned.bits + c * kLanes), zero);
    const VU low = hn::Load(U(), extremes.asUnsigned.bits + c * kLanes);
    // As a magnitude: the sign bit turns over, so that what had none becomes "negative" and is cut to 0.
    const VU lowMagnitude = MaxSigned::of(hn::Xor(low, hn::Set(U(), 0x80000000U)), zero);
    longer[c] = MaxUnsigned::of(high, lowMagnitude);
    const VU shorter = MinUnsigned::of(high, lowMagnitude);
    negative[c] = hn::And(hn::ShiftRight<24>(hn::Sub(high, lowMagnitude)), hn::Set(U(), wire::kNegativeLonger));
    if (smallest != nullptr) {
      const VF half = hn::Set(F(), 0.5F);
      const VF least = asF(hn::Load(U(), smallest->bits + c * kLanes));
      step[c] = hn::Add(hn::Mul(half, asF(longer[c])), hn::Mul(half, least));
    } else {
      step[c] = hn::Max(hn::Mul(asF(longer[c]), longerFactor), hn::Mul(asF(shorter), shorterFactor));
    }
    anyLonger = MaxUnsigned::of(anyLonger, longer[c]);
    largestStep = hn::Max(largestStep, step[c]);
  }
  const std::uint32_t largest = hn::GetLane(hn::MaxOfLanes(U(), anyLonger));
  plan.kind = largest == 0 ? wire::kZeroTile : wire::kRawTile;
  if (largest >= 0x7F800000U || largest < std::bit_cast<std::uint32_t>(format::kMinCodedMagnitude)) return;

  const VF scale = hn::MaxOfLanes(F(), largestStep);
  plan.scale = hn::GetLane(scale);
  VI smallestCode = hn::Set(I(), 1);
  for (std::size_t c = 0; c < kColumns; ++c) {
    const VI code = ratioCodes(asU(hn::Div(step[c], scale)));
    const auto used = hn::Gt(asI(longer[c]), hn::Zero(I()));
    smallestCode = hn::Min(smallestCode, hn::IfThenElse(used, code, hn::Set(I(), 1)));
    const VF d = hn::Mul(ratioValues(hn::BitCast(U(), code)), scale);
    const VF inverse = hn::IfThenElseZero(hn::RebindMask(F(), used), hn::Div(hn::Set(F(), 1.0F), d));
    hn::Store(asF(hn::Or(asU(inverse), hn::ShiftLeft<24>(negative[c]))), F(), plan.inverse + c * kLanes);
    const VI byte = hn::Or(hn::IfThenElseZero(used, code), asI(negative[c]));
    const hn::Rebind<std::uint8_t, U> d8;
    hn::StoreU(hn::DemoteTo(d8, byte), d8, bucketBytes + c * kLanes);
  }
  if (hn::GetLane(hn::MinOfLanes(I(), smallestCode)) >= 1) plan.kind = static_cast<std::uint8_t>(bits);
}

/// The fp32 around which numbers are 2^-fraction apart: adding it rounds to nearest even and leaves the result in the
/// low bits.
template <int kFraction>
struct Anchor {
  static constexpr float kValue = static_cast<float>(3U << (22 - kFraction));
  static constexpr std::uint32_t kBits = std::bit_cast<std::uint32_t>(kValue);
};

/// How the codes of a lane are put together: rows are summed in groups that fill at most 32 bits, groups are then
/// placed in words.
template <int B, Rounding R>
struct Packing {
  static constexpr bool kNoise = R == Rounding::Stochastic;
  static constexpr int kFraction = kNoise || B == 1 ? format::fractionBits(B) : 0;
  static constexpr int kDrop =
      B == 1 ? kFraction + 1 : kFraction;  // bits that are cut off when a level is rounded down
  static constexpr std::size_t kGroupRows = B == 1 ? 32 : B == 2 ? 16 : B <= 4 ? 8 : 4;
  static constexpr std::size_t kGroups = kRows / kGroupRows;
  static constexpr std::size_t kGroupBits = kGroupRows * B;
  /// A raw code is the anchor's bits plus a signed level, shifted down; their weighted sum is the packed group but for
  /// this constant.
  static constexpr std::uint32_t correction() {
    const std::uint32_t offset = B == 1 ? 0U : (1U << (B - 1)) - 1U;
    const std::uint32_t anchor = Anchor<kFraction>::kBits >> kDrop;
    std::uint32_t sum = 0;
    for (std::size_t row = 0; row < kGroupRows; ++row) sum += (offset - anchor) << (row * B);
    return sum;
  }
};

struct RowFactors {
  std::uint32_t of[kRows / 2];
};
constexpr RowFactors rowFactors() {
  RowFactors f{};
  for (std::uint32_t pair = 0; pair < kRows / 2; ++pair) f.of[pair] = format::rowFactor(pair);
  return f;
}
inline constexpr RowFactors kRowFactors = rowFactors();

/// Two rows (one bucket's share of a column) as raw codes at their places in the group.
template <int B, Rounding R, std::size_t kPair>
HWY_INLINE VU packPair(const float* x, const float* inverses, VU seed) {
  using P = Packing<B, R>;
  constexpr int kShift0 = static_cast<int>(kPair * 2 % P::kGroupRows) * B;
  constexpr int kShift1 = kShift0 + B;
  const VF inverse = hn::Set(F(), inverses[kPair]);
  const VF anchor = hn::Set(F(), Anchor<P::kFraction>::kValue);
  VU v0 = asU(hn::Add(hn::Mul(hn::LoadU(F(), x + kPair * 2 * kRow), inverse), anchor));
  VU v1 = asU(hn::Add(hn::Mul(hn::LoadU(F(), x + (kPair * 2 + 1) * kRow), inverse), anchor));
  if constexpr (P::kNoise) {
    constexpr std::uint32_t kMask = B < 8 ? 0xFFFCU : 0x3FFCU;
    VU noise = hn::Mul(seed, hn::Set(U(), kRowFactors.of[kPair]));
    noise = hn::Xor(noise, hn::ShiftRight<16>(noise));
    noise = hn::OrAnd(hn::Set(U(), 0x00020002U), noise, hn::Set(U(), kMask << 16 | kMask));
    VU r0 = hn::And(noise, hn::Set(U(), 0xFFFF));
    VU r1 = hn::ShiftRight<16>(noise);
    if constexpr (B == 1) {  // (Y + 2^F + 2r) >> (F + 1)
      r0 = hn::Add(hn::Add(r0, r0), hn::Set(U(), 1U << P::kFraction));
      r1 = hn::Add(hn::Add(r1, r1), hn::Set(U(), 1U << P::kFraction));
    }
    v0 = hn::ShiftRight<P::kDrop>(hn::Add(v0, r0));
    v1 = hn::ShiftRight<P::kDrop>(hn::Add(v1, r1));
  } else if constexpr (B == 1) {  // 1 unless the fixed-point level is negative
    v0 = hn::ShiftRight<31>(hn::Sub(hn::Set(U(), Anchor<P::kFraction>::kBits - 1), v0));
    v1 = hn::ShiftRight<31>(hn::Sub(hn::Set(U(), Anchor<P::kFraction>::kBits - 1), v1));
  }
  return hn::Add(hn::ShiftLeft<kShift0>(v0), hn::ShiftLeft<kShift1>(v1));
}

template <int B, Rounding R, std::size_t kFirstPair, std::size_t... J>
HWY_INLINE VU packGroup(const float* x, const float* inverses, VU seed, std::index_sequence<J...>) {
  VU sum = hn::Set(U(), B == 1 && R == Rounding::Nearest ? 0U : Packing<B, R>::correction());
  ((sum = hn::Add(sum, packPair<B, R, kFirstPair + J>(x, inverses, seed))), ...);
  return sum;
}

template <int B, Rounding R, std::size_t kGroup>
HWY_INLINE void placeGroup(const float* x, const float* inverses, VU seed, VU* words) {
  using P = Packing<B, R>;
  constexpr std::size_t kPairs = P::kGroupRows / 2;
  constexpr std::size_t kBit = kGroup * P::kGroupBits;
  constexpr std::size_t kWord = kBit / 32;
  constexpr int kShift = static_cast<int>(kBit % 32);
  const VU group = packGroup<B, R, kGroup * kPairs>(x, inverses, seed, std::make_index_sequence<kPairs>());
  if constexpr (kShift == 0) {
    words[kWord] = group;
  } else {
    words[kWord] = hn::Or(words[kWord], hn::ShiftLeft<kShift>(group));
    if constexpr (kShift + P::kGroupBits > 32) words[kWord + 1] = hn::ShiftRight<32 - kShift>(group);
  }
}

template <int B, Rounding R, std::size_t... G>
HWY_INLINE void packColumn(const float* x, const float* inverses, VU seed, std::uint32_t* out,
                           std::index_sequence<G...>) {
  VU words[B];
  (placeGroup<B, R, G>(x, inverses, seed, words), ...);
  for (std::size_t w = 0; w < B; ++w) hn::StoreU(words[w], U(), out + w * kRow);
}

/// laneNoise() of format.h for kLanes lanes from `first` on.
HWY_INLINE VU laneSeeds(std::uint64_t tileNoise, std::size_t first) {
  const VU lane = hn::Iota(U(), static_cast<std::uint32_t>(first));
  VU s = hn::Add(hn::Mul(lane, hn::Set(U(), 0x9E3779B9U)), hn::Set(U(), static_cast<std::uint32_t>(tileNoise)));
  s = hn::Mul(hn::Xor(s, hn::ShiftRight<16>(s)), hn::Set(U(), 0x85EBCA6BU));
  s = hn::Add(hn::Xor(s, hn::ShiftRight<15>(s)), hn::Set(U(), static_cast<std::uint32_t>(tileNoise >> 32)));
  s = hn::Mul(s, hn::Set(U(), 0xC2B2AE35U));
  return hn::Xor(s, hn::ShiftRight<16>(s));
}

/// Rounds and packs the 512 elements at x into 64 * B bytes at out.
template <int B, Rounding R>
HWY_NOINLINE void packTile(const float* x, const TilePlan& plan, std::uint64_t tileNoise, std::byte* out) {
  std::uint32_t* words = reinterpret_cast<std::uint32_t*>(out);
  for (std::size_t c = 0; c < kColumns; ++c) {
    const VU seed = R == Rounding::Stochastic ? laneSeeds(tileNoise, c * kLanes) : hn::Zero(U());
    packColumn<B, R>(x + c * kLanes, plan.inverse, seed, words + c * kLanes,
                     std::make_index_sequence<Packing<B, R>::kGroups>());
  }
}

using PackTile = void (*)(const float* x, const TilePlan& plan, std::uint64_t tileNoise, std::byte* out);
template <Rounding R>
inline constexpr PackTile kPackTile[] = {packTile<1, R>, packTile<2, R>, packTile<3, R>, packTile<4, R>,
                                         packTile<5, R>, packTile<6, R>, packTile<7, R>, packTile<8, R>};

/// Encodes all tiles that `source` gives. Tiles go through each stage in small groups that stay in the L1 cache, so
/// that the long chains of one tile's planning (two divisions, several reductions) overlap with the others'.
template <class Source>
HWY_INLINE void encodeTiles(const EncodeSpec& spec, Source& source, PayloadWriter& writer) {
  constexpr std::size_t kGroup = 4;
  alignas(64) float buffers[kGroup][kTile];
  Extremes extremes[kGroup];
  TilePlan plans[kGroup];
  const float* x[kGroup];
  std::byte* codes[kGroup];
  const bool stochastic = spec.rounding == Rounding::Stochastic;
  const bool needsSmallest = spec.bits == 1 && !stochastic;
  const PackTile pack = (stochastic ? kPackTile<Rounding::Stochastic> : kPackTile<Rounding::Nearest>)[spec.bits - 1];
  for (std::size_t first = 0; first < writer.tiles(); first += kGroup) {
    const std::size_t tiles = writer.tiles() - first < kGroup ? writer.tiles() - first : kGroup;
    for (std::size_t i = 0; i < tiles; ++i) {
      x[i] = source.tile(first + i, buffers[i]);
      extremesOf(x[i], extremes[i]);
    }
    for (std::size_t i = 0; i < tiles; ++i) {
      PerBucket smallest;
      if (needsSmallest) smallestOf(x[i], smallest);
      planTile(spec.bits, extremes[i], needsSmallest ? &smallest : nullptr, plans[i], writer.buckets());
      codes[i] = writer.add(plans[i].kind, plans[i].scale);
    }
    for (std::size_t i = 0; i < tiles; ++i) {
      source.expect(first + kGroup + i);
      if (codes[i] == nullptr) continue;
      const std::uint64_t tile = spec.noise.first / kTile + first + i;
      pack(x[i], plans[i], stochastic ? format::tileNoise(spec.noise.key, tile) : 0, codes[i]);
    }
    for (std::size_t i = 0; i < tiles; ++i) source.encoded(first + i, x[i], writer);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace cgx::codec::simd
HWY_AFTER_NAMESPACE();

#endif
