// Own conversions on purpose: the oracle shares no code with the library.
#include "support/nccl_host/numbers.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>

namespace cgx::host {
namespace {

constexpr std::size_t kTile = 512;

std::uint64_t mix(std::uint64_t x) noexcept {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

/// Four uniform 16-bit numbers added: near enough to normal, mean 0, variance 1.
float nearNormal(std::uint64_t r) noexcept {
  const auto part = [r](int i) { return static_cast<float>((r >> (16 * i)) & 0xFFFF) / 65536.0F - 0.5F; };
  return (part(0) + part(1) + part(2) + part(3)) * 1.7320508F;
}

float halfToFloat(std::uint16_t h) noexcept {
  const int sign = h >> 15 ? -1 : 1;
  const int exponent = (h >> 10) & 31;
  const int mantissa = h & 1023;
  if (exponent == 31) return mantissa ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(sign) * HUGE_VALF;
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                                        : std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
  return static_cast<float>(sign) * magnitude;
}

std::uint16_t floatToHalf(float f) noexcept {
  const auto sign = static_cast<std::uint16_t>(std::signbit(f) ? 0x8000 : 0);
  if (std::isnan(f)) return 0x7E00;
  const float a = std::fabs(f);
  if (a == 0) return sign;                                              // frexp knows no exponent for it
  if (a >= 65520.0F) return static_cast<std::uint16_t>(sign | 0x7C00);  // rounds to infinity
  int exponent = 0;
  std::frexp(a, &exponent);                                       // a = m * 2^exponent, m in [0.5, 1)
  const int unit = std::max(exponent - 11, -24);                  // exponent of the last place
  const float scaled = std::ldexp(a, -unit);                      // at most 2^11
  const auto rounded = static_cast<int>(std::nearbyint(scaled));  // default rounding: nearest even
  // With 10 mantissa bits, (biased exponent << 10) + mantissa carries into the exponent by itself.
  const int bits = unit == -24 ? rounded : ((unit + 24) << 10) + rounded;
  return static_cast<std::uint16_t>(sign | bits);
}

float bfloatToFloat(std::uint16_t b) noexcept {
  const std::uint32_t bits = static_cast<std::uint32_t>(b) << 16;
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}

std::uint16_t floatToBfloat(float f) noexcept {
  if (std::isnan(f)) return 0x7FC0;
  std::uint32_t bits;
  std::memcpy(&bits, &f, 4);
  return static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

float value(Fill fill, std::uint64_t r, std::size_t i, int rank) noexcept {
  switch (fill) {
    case Fill::Normal:
      return nearNormal(r);
    case Fill::Integers:
      return static_cast<float>(static_cast<int>(r % 17) - 8);
    case Fill::IndexCoded:
      return static_cast<float>(static_cast<int>(i % 251) - 125) + static_cast<float>(rank);
    case Fill::Spread:
      return nearNormal(r) * std::pow(10.0F, static_cast<float>(mix(i / 300) % 10) - 6.0F);
    case Fill::Zeros:
      return 0.0F;
    case Fill::Constant:
      return 0.5F + static_cast<float>(rank);
    case Fill::Large:
      return nearNormal(r) * 1000.0F;
    case Fill::NaNs:
      return std::numeric_limits<float>::quiet_NaN();
    case Fill::Huge:
      return 1e30F;
    case Fill::Bits:
      return 0.0F;  // handled by the caller
  }
  return 0.0F;
}

double maxMagnitude(const std::vector<std::byte>& memory, ncclDataType_t dtype, std::size_t begin, std::size_t end) {
  double largest = 0;
  for (std::size_t i = begin; i < end; ++i) {
    const double a = std::fabs(load(dtype, memory.data(), i));
    if (std::isfinite(a)) largest = std::max(largest, a);
  }
  return largest;
}

double unitRoundoff(ncclDataType_t dtype) noexcept {
  if (dtype == ncclFloat16) return 0x1p-11;
  return dtype == ncclBfloat16 ? 0x1p-8 : 0x1p-24;
}

double largestFinite(ncclDataType_t dtype) noexcept {
  if (dtype == ncclFloat16) return 65504.0;
  return dtype == ncclBfloat16 ? 0x1.FEp127 : 0x1.FFFFFEp127;
}

bool within(const Sums& sums, const std::vector<double>& allowed, std::size_t i, const std::byte* got) {
  const std::size_t width = bytesOf(sums.dtype);
  const double value = load(sums.dtype, got, i);
  if (allowed.empty()) {
    const double want = load(sums.dtype, sums.rankOrder.data(), i);
    if (std::isnan(want)) return std::isnan(value);
    return std::memcmp(got + i * width, sums.rankOrder.data() + i * width, width) == 0 || (want == 0 && value == 0);
  }
  const double want = sums.exact[i];
  if (std::isnan(want)) return std::isnan(value);
  if (std::isinf(want)) return value == want;
  if (std::isinf(value))
    return std::fabs(want) + allowed[i] >= largestFinite(sums.dtype) && std::signbit(value) == std::signbit(want);
  return std::fabs(value - want) <= allowed[i];
}

}  // namespace

std::size_t bytesOf(ncclDataType_t dtype) {
  switch (dtype) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    case ncclNumTypes:
      break;
  }
  return 1;
}

const char* nameOf(ncclDataType_t dtype) {
  if (dtype == ncclFloat32) return "fp32";
  if (dtype == ncclFloat16) return "fp16";
  return dtype == ncclBfloat16 ? "bf16" : "other";
}

double load(ncclDataType_t dtype, const std::byte* memory, std::size_t i) {
  if (dtype == ncclFloat32) {
    float f;
    std::memcpy(&f, memory + 4 * i, 4);
    return f;
  }
  std::uint16_t bits;
  std::memcpy(&bits, memory + 2 * i, 2);
  return dtype == ncclFloat16 ? halfToFloat(bits) : bfloatToFloat(bits);
}

void store(ncclDataType_t dtype, std::byte* memory, std::size_t i, float value) {
  if (dtype == ncclFloat32) {
    std::memcpy(memory + 4 * i, &value, 4);
    return;
  }
  const std::uint16_t bits = dtype == ncclFloat16 ? floatToHalf(value) : floatToBfloat(value);
  std::memcpy(memory + 2 * i, &bits, 2);
}

void fillInput(ncclDataType_t dtype, Fill fill, std::uint64_t seed, int rank, std::uint64_t operation,
               std::span<std::byte> out) {
  const std::uint64_t key = mix(seed ^ mix(operation * 1031 + static_cast<std::uint64_t>(rank)));
  if (fill == Fill::Bits) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>(mix(key + i / 8) >> (8 * (i % 8)));
    return;
  }
  const std::size_t count = out.size() / bytesOf(dtype);
  for (std::size_t i = 0; i < count; ++i) {
    const float f = value(fill, mix(key + i), i, rank);
    store(dtype, out.data(), i, dtype == ncclFloat16 && fill == Fill::Huge ? 65504.0F : f);
  }
}

Sums sumOf(ncclDataType_t dtype, Fill fill, std::uint64_t seed, const std::vector<int>& members,
           std::uint64_t operation, std::size_t count) {
  Sums sums;
  sums.dtype = dtype;
  const std::size_t bytes = count * bytesOf(dtype);
  sums.exact.assign(count, 0.0);
  sums.rankOrder.resize(bytes);
  std::vector<float> order(count);
  for (const int member : members) {
    std::vector<std::byte>& input = sums.inputs.emplace_back(bytes);
    fillInput(dtype, fill, seed, member, operation, input);
    const bool first = sums.inputs.size() == 1;
    for (std::size_t i = 0; i < count; ++i) {
      const double x = load(dtype, input.data(), i);
      sums.exact[i] += x;
      order[i] = first ? static_cast<float>(x) : order[i] + static_cast<float>(x);
    }
  }
  for (std::size_t i = 0; i < count; ++i) store(dtype, sums.rankOrder.data(), i, order[i]);
  return sums;
}

Bound exactly() {
  return [](const Sums&) { return std::vector<double>(); };
}

Bound quantised(int bits) {
  return [bits](const Sums& sums) {
    const double step = 2.0 / ((1 << bits) - 1);  // over a magnitude of one
    const std::size_t count = sums.exact.size();
    std::vector<double> allowed(count);
    for (std::size_t begin = 0; begin < count; begin += kTile) {
      const std::size_t end = std::min(count, begin + kTile);
      double inputs = 0;
      for (const auto& input : sums.inputs) inputs += maxMagnitude(input, sums.dtype, begin, end);
      double sum = 0;
      for (std::size_t i = begin; i < end; ++i)
        if (std::isfinite(sums.exact[i])) sum = std::max(sum, std::fabs(sums.exact[i]));
      const double bound = 1.05 * step * (inputs + sum + step * inputs) + 4 * unitRoundoff(sums.dtype) * (inputs + sum);
      std::fill(allowed.begin() + static_cast<std::ptrdiff_t>(begin),
                allowed.begin() + static_cast<std::ptrdiff_t>(end), bound + 1e-37);
    }
    return allowed;
  };
}

Misses compare(const Sums& sums, const Bound& bound, std::span<const std::byte> got) {
  const std::vector<double> allowed = bound(sums);
  Misses misses;
  for (std::size_t i = 0; i < sums.exact.size(); ++i) {
    if (within(sums, allowed, i, got.data())) continue;
    if (misses.count++ == 0) {
      char text[160];
      snprintf(text, sizeof text, "element %zu is %.9g, the sum is %.9g, allowed error %.3g", i,
               load(sums.dtype, got.data(), i), sums.exact[i], allowed.empty() ? 0.0 : allowed[i]);
      misses.first = i;
      misses.text = text;
    }
    misses.last = i;
  }
  return misses;
}

}  // namespace cgx::host
