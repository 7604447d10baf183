// One tile, one element at a time. Every fp32 operation here is listed in docs/codec.md in the same order.
#include "codec/scalar_tile.h"

#include <algorithm>
#include <cfloat>
#include <span>

namespace cgx::codec::scalar {
namespace {

/// Element `index` as fp32: exact, NaNs canonical.
float loadElement(DType dtype, const void* from, std::size_t index) {
  switch (dtype) {
    case DType::F16:
      return floatOf(format::f16ToF32(loadAt<std::uint16_t>(from, index)));
    case DType::BF16:
      return floatOf(format::bf16ToF32(loadAt<std::uint16_t>(from, index)));
    case DType::F32:
      break;
  }
  const auto bits = loadAt<std::uint32_t>(from, index);
  return floatOf(format::isNaN32(bits) ? format::kNaN32 : bits);
}

bool negativeLonger(std::uint8_t bucketByte) { return (bucketByte & wire::kNegativeLonger) != 0; }
float stepOf(float scale, std::uint8_t bucketByte) { return format::ratioValue(bucketByte & wire::kRatioMask) * scale; }

/// Nearest integer, ties to even, for |value| <= 2^22.
std::int32_t nearest(float value) {
  constexpr float kOneApart = 12582912.0F;  // 1.5 * 2^23: fp32 numbers around it are the integers
  return static_cast<std::int32_t>((value + kOneApart) - kOneApart);
}

/// `x` is sign-normalised: the longer side is positive. Neither rounding leaves 0 .. 2H-1: a step is never smaller than
/// ideal, and what the rounding of fp32 adds is far from half a level.
std::uint32_t codeOf(int bits, Rounding rounding, float x, float inverse, std::uint32_t noise) {
  const float level = x * inverse;
  const int fraction = format::fractionBits(bits);
  if (bits == 1 || rounding == Rounding::Stochastic) {
    const std::int32_t fixed = nearest(level * static_cast<float>(1 << fraction));
    const std::int32_t term = format::roundingTerm(bits, noise);
    if (bits == 1 && rounding == Rounding::Nearest) return fixed >= 0 ? 1 : 0;
    if (bits == 1) return static_cast<std::uint32_t>((fixed + (1 << fraction) + 2 * term) >> (fraction + 1));
    return static_cast<std::uint32_t>(((fixed + term) >> fraction) + format::levelsOf(bits) - 1);
  }
  return static_cast<std::uint32_t>(nearest(level) + format::levelsOf(bits) - 1);
}

float valueOf(int bits, std::uint8_t bucketByte, std::uint32_t code, float step) {
  float value = static_cast<float>(format::levelOf(bits, negativeLonger(bucketByte), code)) * step;
  if (bits == 1) value += 0.0F;  // a bucket of zeros has levels +0 and -0
  return std::clamp(value, -FLT_MAX, FLT_MAX);
}

/// Where the code of an element starts in its tile's codes, in bits; a code may continue at the start of the lane's
/// next word.
struct CodePlace {
  std::size_t word;  // index of the 32-bit word
  std::size_t next;  // of the lane's next word
  std::size_t shift;
};
CodePlace placeOf(int bits, std::size_t element) {
  const std::size_t lane = element % wire::kTileLanes;
  const std::size_t bit = element / wire::kTileLanes * static_cast<std::size_t>(bits);
  const std::size_t word = bit / 32 * wire::kTileLanes + lane;
  return {word, word + wire::kTileLanes, bit % 32};
}

void putCode(std::byte* codes, int bits, std::size_t element, std::uint32_t code) {
  const CodePlace at = placeOf(bits, element);
  storeAt(codes, at.word, loadAt<std::uint32_t>(codes, at.word) | code << at.shift);
  if (at.shift + static_cast<std::size_t>(bits) > 32)
    storeAt(codes, at.next, loadAt<std::uint32_t>(codes, at.next) | code >> (32 - at.shift));
}

std::uint32_t getCode(const std::byte* codes, int bits, std::size_t element) {
  const CodePlace at = placeOf(bits, element);
  std::uint32_t code = loadAt<std::uint32_t>(codes, at.word) >> at.shift;
  if (at.shift + static_cast<std::size_t>(bits) > 32) code |= loadAt<std::uint32_t>(codes, at.next) << (32 - at.shift);
  return code & ((1U << bits) - 1);
}

}  // namespace

void storeElement(DType dtype, float value, void* to, std::size_t index) {
  const std::uint32_t bits = bitsOf(value);
  switch (dtype) {
    case DType::F16:
      return storeAt(to, index, format::f32ToF16(bits));
    case DType::BF16:
      return storeAt(to, index, format::f32ToBf16(bits));
    case DType::F32:
      return storeAt(to, index, format::isNaN32(bits) ? format::kNaN32 : bits);
  }
}

void storeSaturated(DType dtype, float value, void* to, std::size_t index) {
  const std::uint32_t bits = bitsOf(value);
  const auto finite = [](std::uint16_t half, std::uint16_t infinity) {
    return static_cast<std::uint16_t>(half - ((half & 0x7FFF) == infinity));
  };
  switch (dtype) {
    case DType::F16:
      return storeAt(to, index, finite(format::f32ToF16(bits), 0x7C00));
    case DType::BF16:
      return storeAt(to, index, finite(format::f32ToBf16(bits), 0x7F80));
    case DType::F32:
      return storeAt(to, index, bits);
  }
}

TileValues loadTile(DType dtype, const void* in, std::size_t count, std::size_t tile) {
  TileValues x{};
  const std::size_t elements = format::elementsOf(count, tile);
  for (std::size_t i = 0; i < elements; ++i) x[i] = loadElement(dtype, in, tile * kTile + i);
  return x;
}

namespace {

struct Extremes {
  float positive = 0;        // max(x, 0)
  float negative = 0;        // max(-x, 0)
  float smallest = FLT_MAX;  // |x|
};

Extremes extremesOf(std::span<const float> bucket) {
  Extremes e;
  for (const float x : bucket) {
    e.positive = std::max(e.positive, x);
    e.negative = std::max(e.negative, -x);
    e.smallest = std::min(e.smallest, x < 0 ? -x : x);
  }
  return e;
}

/// The step that just covers the bucket. One bit has no levels to cover it with when rounding to nearest: there it is
/// the step with the smallest worst error.
float idealStep(const EncodeSpec& spec, const Extremes& e) {
  const float longer = std::max(e.positive, e.negative);
  const float shorter = std::min(e.positive, e.negative);
  if (spec.bits == 1) return spec.rounding == Rounding::Stochastic ? longer : 0.5F * longer + 0.5F * e.smallest;
  return std::max(longer * format::longerFactor(spec.bits), shorter * format::shorterFactor(spec.bits));
}

TilePlan planExact(const TileValues& x) {
  TilePlan plan;
  const bool zero = std::all_of(x.begin(), x.end(), [](float v) { return bitsOf(v) == 0; });
  if (zero) plan.kind = wire::kZeroTile;
  return plan;
}

}  // namespace

TilePlan planTile(const EncodeSpec& spec, const TileValues& x) {
  if (spec.bits == kExactBits) return planExact(x);
  TilePlan plan;
  float largest = 0;
  for (const float v : x) {
    if (!format::isFinite32(bitsOf(v))) return plan;
    largest = std::max(largest, v < 0 ? -v : v);
  }
  if (largest == 0) {
    plan.kind = wire::kZeroTile;
    return plan;
  }
  if (largest < format::kMinCodedMagnitude) return plan;

  std::array<Extremes, wire::kTileBuckets> extremes;
  std::array<float, wire::kTileBuckets> steps;
  for (std::size_t k = 0; k < wire::kTileBuckets; ++k) {
    extremes[k] = extremesOf(std::span(x).subspan(k * kBucket, kBucket));
    steps[k] = idealStep(spec, extremes[k]);
    plan.scale = std::max(plan.scale, steps[k]);
  }
  for (std::size_t k = 0; k < wire::kTileBuckets; ++k) {
    const Extremes& e = extremes[k];
    std::int32_t code = 0;
    if (e.positive > 0 || e.negative > 0) {
      code = format::ratioCode(steps[k] / plan.scale);
      if (code < 1) return plan;  // still raw
    }
    plan.bucketBytes[k] = static_cast<std::uint8_t>(code | (e.negative > e.positive ? wire::kNegativeLonger : 0));
  }
  plan.kind = static_cast<std::uint8_t>(spec.bits);
  return plan;
}

void encodeTile(const TilePlan& plan, Rounding rounding, std::uint64_t tileNoise, const TileValues& x,
                std::byte* codes) {
  std::memset(codes, 0, format::codeBytes(plan.kind));
  for (std::size_t i = 0; i < kTile; ++i) {
    const std::uint8_t bucket = plan.bucketBytes[i / kBucket];
    const float inverse = format::inverseOf(stepOf(plan.scale, bucket));
    const float normalised = negativeLonger(bucket) ? -x[i] : x[i];
    const std::uint32_t noise = format::noiseOf(tileNoise, static_cast<std::uint32_t>(i));
    putCode(codes, plan.kind, i, codeOf(plan.kind, rounding, normalised, inverse, noise));
  }
}

void decodeTile(const TilePlan& plan, const std::byte* codes, TileValues& x) {
  for (std::size_t i = 0; i < kTile; ++i) {
    const std::uint8_t bucket = plan.bucketBytes[i / kBucket];
    x[i] = valueOf(plan.kind, bucket, getCode(codes, plan.kind, i), stepOf(plan.scale, bucket));
  }
}

}  // namespace cgx::codec::scalar
