// What can be said about a payload without decoding it: how large it may get, and whether a peer's bytes are one. Also
// the noise key.
#include <cstring>
#include <string>

#include "cgx/codec.h"
#include "codec/format.h"

namespace cgx::codec {
namespace {

Status malformed(const std::string& what) { return Status::invalid("malformed payload: " + what); }

bool allZero(std::span<const std::byte> bytes) {
  for (const std::byte b : bytes) {
    if (b != std::byte{0}) return false;
  }
  return true;
}

/// Sizes of the sections that the tile table implies.
struct Census {
  std::size_t coded = 0;
  std::size_t codeBytes = 0;
  std::size_t rawBytes = 0;
  std::size_t partialRawPadding = 0;  // at the end of the payload
};

Status takeCensus(std::span<const std::byte> table, DType dtype, std::size_t count, Census& census) {
  for (std::size_t tile = 0; tile < table.size(); ++tile) {
    const auto kind = std::to_integer<std::uint8_t>(table[tile]);
    if (kind == wire::kZeroTile) continue;
    if (kind == wire::kRawTile) {
      const std::size_t elements = format::elementsOf(count, tile);
      const std::size_t bytes = format::rawTileBytes(dtype, elements);
      census.rawBytes += bytes;
      census.partialRawPadding = bytes - elements * bytesOf(dtype);
    } else if (kind <= wire::kMaxTileBits) {
      ++census.coded;
      census.codeBytes += format::codeBytes(kind);
    } else {
      return malformed("tile " + std::to_string(tile) + " has kind " + std::to_string(kind));
    }
  }
  return {};
}

Status checkScales(std::span<const std::byte> scales, std::size_t coded) {
  for (std::size_t i = 0; i < coded; ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, scales.data() + i * sizeof bits, sizeof bits);
    const bool positive = (bits >> 31) == 0 && bits != 0;
    if (!positive || !format::isFinite32(bits))
      return malformed("scale " + std::to_string(i) + " is not a positive number");
  }
  return {};
}

Status validateTiles(std::span<const std::byte> bytes, DType dtype, std::size_t count) {
  const std::size_t tiles = format::tilesOf(count);
  if (bytes.size() >= count * bytesOf(dtype)) return malformed("tiles that take no less room than the elements");
  if (bytes.size() < format::padded(tiles)) return malformed("no room for the tile table");
  Census census;
  CGX_TRY(takeCensus(bytes.first(tiles), dtype, count, census));
  const format::Sections at = format::sectionsOf(tiles, census.coded, census.codeBytes, census.rawBytes);
  if (bytes.size() != at.total) {
    return malformed(std::to_string(bytes.size()) + " bytes where the tile table implies " + std::to_string(at.total));
  }
  CGX_TRY(checkScales(bytes.subspan(at.scales), census.coded));
  const std::size_t scalesEnd = at.scales + census.coded * sizeof(float);
  const bool cleanPadding = allZero(bytes.subspan(tiles, at.scales - tiles)) &&
                            allZero(bytes.subspan(scalesEnd, at.buckets - scalesEnd)) &&
                            allZero(bytes.last(census.partialRawPadding));
  return cleanPadding ? Status{} : malformed("padding that is not zero");
}

constexpr std::uint64_t mix(std::uint64_t value) { return format::mix64(value); }

}  // namespace

std::uint64_t noiseKey(std::uint64_t seed, std::uint64_t communicator, std::uint64_t operation, std::uint32_t rank,
                       std::uint32_t phase) noexcept {
  std::uint64_t key = mix(seed + 1);
  key = mix(key ^ communicator) + 1;
  key = mix(key ^ operation) + 1;
  return mix(key ^ ((std::uint64_t{phase} << 32) | rank));
}

std::size_t payloadCapacity(DType dtype, std::size_t count) noexcept {
  constexpr std::size_t kPerTile = 1 + sizeof(float) + wire::kTileBuckets;  // table, scale, bucket bytes
  constexpr std::size_t kSlack =
      1024;  // section padding, whole-vector stores, codes of a partial tile that then travels raw
  const std::size_t bytes = count * bytesOf(dtype) + format::tilesOf(count) * kPerTile + kSlack;
  return (bytes + 63) & ~std::size_t{63};
}

Status validate(const Payload& payload, DType dtype, std::size_t count) {
  const std::size_t bytes = payload.bytes.size();
  switch (payload.form) {
    case Form::Zero:
      return bytes == 0 ? Status{} : malformed("bytes in a payload of zeros");
    case Form::Raw:
      if (bytes == count * bytesOf(dtype)) return {};
      return malformed(std::to_string(bytes) + " bytes for " + std::to_string(count) + " raw elements");
    case Form::Tiles:
      return validateTiles(payload.bytes, dtype, count);
  }
  return malformed("form " + std::to_string(static_cast<int>(payload.form)));
}

}  // namespace cgx::codec
