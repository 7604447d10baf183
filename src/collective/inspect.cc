#include "inspect.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "codec/environment.h"

namespace cgx::collective {
namespace {

using codec::kTile;
using Tile = std::array<float, kTile>;

constexpr std::size_t kLargestPayload = 4096;  // of one tile

/// Several sums at a time: the compiler may not reorder one, and it would wait for each addition.
template <class Term>
double sumOf(Term term) {
  std::array<double, 8> sums{};
  for (std::size_t i = 0; i < kTile; i += sums.size())
    for (std::size_t k = 0; k < sums.size(); ++k) sums[k] += term(i + k);
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

void addTile(ErrorSample& sample, const codec::Kernels& kernels, const codec::EncodeSpec& spec, codec::DType dtype,
             const std::byte* values) noexcept {
  // A tile is coded alone as it is among others: its codes depend on its elements and on its place only.
  alignas(64) std::array<std::byte, kLargestPayload> payload;
  const codec::Encoded encoded = kernels.encode(spec, dtype, values, kTile, payload.data());
  if (encoded.form != codec::Form::Tiles || encoded.rawTiles != 0) return;
  Tile exact{};
  Tile coded{};
  kernels.decodeAdd({codec::Form::Raw, {values, kTile * codec::bytesOf(dtype)}}, dtype, kTile, exact.data());
  kernels.decodeAdd({encoded.form, {payload.data(), encoded.bytes}}, dtype, kTile, coded.data());
  ++sample.tiles;
  sample.errorSquares += sumOf([&](std::size_t i) {
    const double error = static_cast<double>(coded[i]) - static_cast<double>(exact[i]);
    return error * error;
  });
  sample.valueSquares += sumOf([&](std::size_t i) {
    const double value = static_cast<double>(exact[i]);
    return value * value;
  });
}

/// Whether one of `count` elements has all bits of `exponent`.
template <class Word>
bool anyWith(Word exponent, const std::byte* values, std::size_t count) noexcept {
  unsigned found = 0;
  for (std::size_t i = 0; i < count; ++i) {
    Word word = 0;
    std::memcpy(&word, values + i * sizeof word, sizeof word);
    found |= static_cast<unsigned>((word & exponent) == exponent);
  }
  return found != 0;
}

bool anyNonFinite(codec::DType dtype, const std::byte* values, std::size_t count) noexcept {
  switch (dtype) {
    case codec::DType::F32:
      return anyWith<std::uint32_t>(0x7F800000, values, count);
    case codec::DType::F16:
      return anyWith<std::uint16_t>(0x7C00, values, count);
    case codec::DType::BF16:
      return anyWith<std::uint16_t>(0x7F80, values, count);
  }
  return false;
}

}  // namespace

std::uint64_t sampledTile(std::uint64_t operation) noexcept {
  // Multiplying by the golden ratio spreads consecutive numbers evenly; the high bits do.
  return (operation * 0x9E3779B97F4A7C15U) >> 54;
}
static_assert(kSampleStride == 1U << 10, "the ten high bits of a product");

ErrorSample sampleError(const codec::Kernels& kernels, const codec::EncodeSpec& spec, codec::DType dtype,
                        std::uint64_t operation, Range range, const std::byte* values) noexcept {
  const codec::DefaultEnvironment environment;
  ErrorSample sample;
  const std::uint64_t begin = range.first / kTile;
  const std::uint64_t end = begin + range.elements / kTile;  // full ones
  const std::uint64_t wanted = sampledTile(operation);
  std::uint64_t tile = begin + (wanted + kSampleStride - begin % kSampleStride) % kSampleStride;
  for (; tile < end; tile += kSampleStride) {
    const std::size_t offset = static_cast<std::size_t>(tile - begin) * kTile;
    codec::EncodeSpec own = spec;
    own.noise.first += offset;
    addTile(sample, kernels, own, dtype, values + offset * codec::bytesOf(dtype));
  }
  return sample;
}

std::uint64_t nonFiniteTiles(codec::DType dtype, const std::byte* values, std::size_t elements) noexcept {
  std::uint64_t tiles = 0;
  for (std::size_t first = 0; first < elements; first += kTile) {
    const std::size_t count = std::min(kTile, elements - first);
    tiles += static_cast<std::uint64_t>(anyNonFinite(dtype, values + first * codec::bytesOf(dtype), count));
  }
  return tiles;
}

}  // namespace cgx::collective
