// Arithmetic that the reference, the SIMD targets and the tests of the payload share: where sections are, ratio codes,
// 16-bit floats, rounding noise. Integer and single fp32 operations only; knows no vectors and no loops over elements.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "cgx/codec.h"
#include "cgx/wire_tiles.h"

namespace cgx::codec::format {

static_assert(kTile == wire::kTileElements && kBucket == wire::kBucketElements);

// ---- Where things are
// -----------------------------------------------------------------------------------------------------------

constexpr std::size_t padded(std::size_t bytes) {
  return (bytes + wire::kSectionAlign - 1) & ~(wire::kSectionAlign - 1);
}
constexpr std::size_t tilesOf(std::size_t count) { return count / kTile + (count % kTile != 0); }
/// Elements of tile `tile` of `count` elements: kTile, or less for a partial last tile.
constexpr std::size_t elementsOf(std::size_t count, std::size_t tile) {
  const std::size_t left = count - tile * kTile;
  return left < kTile ? left : kTile;
}
constexpr std::size_t codeBytes(int bits) { return wire::kCodeBytesPerBit * static_cast<std::size_t>(bits); }
constexpr std::size_t rawTileBytes(DType dtype, std::size_t elements) { return padded(elements * bytesOf(dtype)); }

/// Byte offsets of the sections of a Tiles payload.
struct Sections {
  std::size_t table = 0;
  std::size_t scales = 0;
  std::size_t buckets = 0;
  std::size_t codes = 0;
  std::size_t raw = 0;
  std::size_t total = 0;
};
/// `coded` tiles with `codeBytes` of codes in all, and `rawBytes` of raw tiles.
constexpr Sections sectionsOf(std::size_t tiles, std::size_t coded, std::size_t allCodeBytes, std::size_t rawBytes) {
  Sections s;
  s.scales = padded(tiles);
  s.buckets = s.scales + padded(coded * sizeof(float));
  s.codes = s.buckets + coded * wire::kTileBuckets;
  s.raw = s.codes + allCodeBytes;
  s.total = s.raw + rawBytes;
  return s;
}

// ---- Scales, steps
// --------------------------------------------------------------------------------------------------------------

inline constexpr float kMinCodedMagnitude = 0x1p-80f;  // a tile below it travels raw: 1 / step stays finite

constexpr int levelsOf(int bits) { return 1 << (bits - 1); }
/// Factor for the shorter side's ideal step, 1/(H-1) in fp32; H = 1 has no shorter side.
constexpr float shorterFactor(int bits) { return bits < 2 ? 0.0F : 1.0F / static_cast<float>(levelsOf(bits) - 1); }
/// Factor for the longer side's ideal step, exactly 1/H.
constexpr float longerFactor(int bits) { return 1.0F / static_cast<float>(levelsOf(bits)); }

/// Smallest ratio code whose value is >= ratio, for 0 <= ratio <= 1; below 1: the ratio is too small to be represented.
constexpr std::int32_t ratioCode(float ratio) {
  const auto bits = std::bit_cast<std::uint32_t>(ratio);
  const auto roundedUp = [bits](std::uint32_t shift) {
    return static_cast<std::int32_t>((bits + (1U << shift) - 1) >> shift);
  };
  const std::int32_t fine = roundedUp(wire::kFineShift) - static_cast<std::int32_t>(wire::kFineBias);
  const std::int32_t coarse = roundedUp(wire::kCoarseShift) - static_cast<std::int32_t>(wire::kCoarseBias);
  return fine > coarse ? fine : coarse;
}
constexpr float ratioValue(std::uint32_t code) {
  if (code == 0) return 0;
  const std::uint32_t fine = (code + wire::kFineBias) << wire::kFineShift;
  const std::uint32_t coarse = (code + wire::kCoarseBias) << wire::kCoarseShift;
  return std::bit_cast<float>(fine < coarse ? fine : coarse);
}
static_assert(ratioValue(127) == 1.0F && ratioCode(1.0F) == 127);
static_assert(ratioValue(63) == 0x1p-4F && ratioCode(0x1p-4F) == 63 && ratioValue(64) == 0x1.1p-4F &&
              ratioValue(62) == 0x1.8p-5F);
static_assert(ratioValue(1) == 0x1p-35F && ratioCode(0x1p-35F) == 1 && ratioCode(0x0.Cp-35F) == 0);

/// What elements are multiplied with to become levels.
constexpr float inverseOf(float step) { return step == 0 ? 0.0F : 1.0F / step; }

/// The integer that `code` stands for.
constexpr int levelOf(int bits, bool negativeLonger, std::uint32_t code) {
  const int level = bits == 1 ? (code != 0 ? 1 : -1) : static_cast<int>(code) - (levelsOf(bits) - 1);
  return negativeLonger ? -level : level;
}

// ---- Rounding noise
// -------------------------------------------------------------------------------------------------------------

/// A bijection of 64-bit words whose every output bit depends on every input bit (the finaliser of SplitMix64).
constexpr std::uint64_t mix64(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}
/// What the noise of one tile starts from; `tile` counts from the operation's first element.
constexpr std::uint64_t tileNoise(std::uint64_t key, std::uint64_t tile) {
  return mix64(key + (tile + 1) * 0x9E3779B97F4A7C15U);
}
/// One random word for each of the 16 lanes of a tile; every row pair derives its noise from it by one multiplication.
constexpr std::uint32_t laneNoise(std::uint64_t tileNoise, std::uint32_t lane) {
  std::uint32_t s = static_cast<std::uint32_t>(tileNoise) + lane * 0x9E3779B9U;
  s = (s ^ (s >> 16)) * 0x85EBCA6BU;
  s = (s ^ (s >> 15)) + static_cast<std::uint32_t>(tileNoise >> 32);
  s *= 0xC2B2AE35U;
  return s ^ (s >> 16);
}
/// The odd factor of rows 2 * pair and 2 * pair + 1.
constexpr std::uint32_t rowFactor(std::uint32_t pair) {
  return static_cast<std::uint32_t>(mix64((pair + 1) * 0x9E3779B97F4A7C15U) | 1U);
}
/// 16 random bits for element `element` of a tile.
constexpr std::uint32_t noiseOf(std::uint64_t tileNoise, std::uint32_t element) {
  const auto row = static_cast<std::uint32_t>(element / wire::kTileLanes);
  const std::uint32_t product =
      laneNoise(tileNoise, static_cast<std::uint32_t>(element % wire::kTileLanes)) * rowFactor(row / 2);
  const std::uint32_t word = product ^ (product >> 16);
  return row % 2 == 0 ? word & 0xFFFFU : word >> 16;
}

/// Fraction bits of a level in stochastic rounding: as many as fp32 leaves beside H levels.
constexpr int fractionBits(int bits) { return bits < 8 ? 16 : 14; }
/// What is added to a level with fractionBits() before it is rounded down: 2, 6, 10, ... and never close enough to 0 or
/// 1 to move a value that is a whole level but for the rounding errors of the arithmetic.
constexpr std::int32_t roundingTerm(int bits, std::uint32_t noise) {
  return static_cast<std::int32_t>((noise & (bits < 8 ? 0xFFFCU : 0x3FFCU)) | 2U);
}

// ---- 16-bit floats, as integers
// -------------------------------------------------------------------------------------------------

inline constexpr std::uint32_t kNaN32 = 0x7FC00000;
inline constexpr std::uint16_t kNaN16 = 0x7E00;
inline constexpr std::uint16_t kNaNB16 = 0x7FC0;

constexpr bool isNaN32(std::uint32_t bits) { return (bits & 0x7FFFFFFFU) > 0x7F800000U; }
constexpr bool isFinite32(std::uint32_t bits) { return (bits & 0x7F800000U) != 0x7F800000U; }

/// Exact; NaNs canonical.
constexpr std::uint32_t bf16ToF32(std::uint16_t half) {
  const std::uint32_t bits = static_cast<std::uint32_t>(half) << 16;
  return isNaN32(bits) ? kNaN32 : bits;
}
/// Nearest even; overflow to Inf; NaNs canonical.
constexpr std::uint16_t f32ToBf16(std::uint32_t bits) {
  if (isNaN32(bits)) return kNaNB16;
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}
/// Exact; NaNs canonical.
constexpr std::uint32_t f16ToF32(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000U) << 16;
  const std::uint32_t exponent = (half >> 10) & 31U;
  const std::uint32_t mantissa = half & 0x3FFU;
  if (exponent == 31) return mantissa != 0 ? kNaN32 : sign | 0x7F800000U;
  if (exponent != 0) return sign | ((exponent + 112) << 23) | (mantissa << 13);
  if (mantissa == 0) return sign;
  const auto top = static_cast<std::uint32_t>(std::bit_width(mantissa)) - 1;  // value = mantissa * 2^-24
  return sign | ((top + 103) << 23) | ((mantissa << (23 - top)) & 0x7FFFFFU);
}
/// Nearest even; overflow to Inf; NaNs canonical.
constexpr std::uint16_t f32ToF16(std::uint32_t bits) {
  if (isNaN32(bits)) return kNaN16;
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude >= 0x47800000U) return static_cast<std::uint16_t>(sign | 0x7C00U);  // 65536 and more
  if (magnitude >= 0x38800000U) {                                                   // normal: a carry may reach Inf
    const std::uint32_t rounded = magnitude + 0xFFFU + ((magnitude >> 13) & 1U);
    return static_cast<std::uint16_t>(sign | ((rounded - (112U << 23)) >> 13));
  }
  if (magnitude < 0x33000000U) return static_cast<std::uint16_t>(sign);  // below 2^-25
  const std::uint32_t shift = 126 - (magnitude >> 23);                   // 14..24: units of 2^-24
  const std::uint32_t mantissa = (magnitude & 0x7FFFFFU) | 0x800000U;
  const std::uint32_t half = mantissa >> shift;
  const std::uint32_t rest = mantissa & ((1U << shift) - 1);
  const std::uint32_t tie = 1U << (shift - 1);
  return static_cast<std::uint16_t>(sign | (half + (rest > tie || (rest == tie && (half & 1U) != 0))));
}

}  // namespace cgx::codec::format
