// The codec one tile after the other: the plain implementation that every other target equals byte for byte, and the
// one for CPUs without any of them. Knows where things are in a payload; what a tile is, scalar_tile.cc knows. Speed is
// not its business.
#include "codec/scalar.h"

#include <algorithm>
#include <cstring>

#include "codec/environment.h"
#include "codec/format.h"
#include "codec/scalar_tile.h"

namespace cgx::codec {
namespace {

using scalar::loadAt;
using scalar::storeAt;
using scalar::TilePlan;
using scalar::TileValues;

bool isCoded(std::uint8_t kind) { return kind != wire::kZeroTile && kind != wire::kRawTile; }

/// Reads the tiles of a payload, or of exact elements, in order from any tile on.
class Reader {
 public:
  Reader(const Contribution& part, DType dtype, std::size_t count, std::size_t firstTile = 0) noexcept
      : dtype_(dtype), count_(count), tile_(firstTile) {
    const bool exact = part.exact != nullptr;
    form_ = exact ? Form::Raw : part.payload.form;
    base_ = exact ? static_cast<const std::byte*>(part.exact) : part.payload.bytes.data();
    if (form_ == Form::Tiles) seek(firstTile);
  }

  /// The next tile as fp32. True: its values were coded, so they are finite and to be saturated when they are stored.
  bool next(TileValues& x) noexcept {
    const std::size_t tile = tile_++;
    if (form_ == Form::Raw) x = scalar::loadTile(dtype_, base_, count_, tile);
    if (form_ == Form::Zero) x.fill(0);
    return form_ == Form::Tiles && nextTile(tile, x);
  }

 private:
  std::uint8_t kindOf(std::size_t tile) const { return loadAt<std::uint8_t>(base_, tile); }

  void seek(std::size_t firstTile) noexcept {
    const std::size_t tiles = format::tilesOf(count_);
    std::size_t coded = 0;
    std::size_t codeBytes = 0;
    format::Sections skipped;
    for (std::size_t tile = 0; tile < tiles; ++tile) {
      const std::uint8_t kind = kindOf(tile);
      const bool skip = tile < firstTile;
      if (isCoded(kind)) {
        ++coded;
        codeBytes += format::codeBytes(kind);
        skipped.scales += skip ? sizeof(float) : 0;
        skipped.buckets += skip ? wire::kTileBuckets : 0;
        skipped.codes += skip ? format::codeBytes(kind) : 0;
      } else if (kind == wire::kRawTile) {
        skipped.raw += skip ? format::rawTileBytes(dtype_, format::elementsOf(count_, tile)) : 0;
      }
    }
    at_ = format::sectionsOf(tiles, coded, codeBytes, 0);
    at_.scales += skipped.scales;
    at_.buckets += skipped.buckets;
    at_.codes += skipped.codes;
    at_.raw += skipped.raw;
  }

  bool nextTile(std::size_t tile, TileValues& x) noexcept {
    TilePlan plan;
    plan.kind = kindOf(tile);
    if (plan.kind == wire::kZeroTile) {
      x.fill(0);
    } else if (plan.kind == wire::kRawTile) {
      const std::size_t elements = format::elementsOf(count_, tile);
      x = scalar::loadTile(dtype_, base_ + at_.raw, elements, 0);
      at_.raw += format::rawTileBytes(dtype_, elements);
    } else {
      plan.scale = loadAt<float>(base_ + at_.scales, 0);
      std::memcpy(plan.bucketBytes.data(), base_ + at_.buckets, plan.bucketBytes.size());
      scalar::decodeTile(plan, base_ + at_.codes, x);
      at_.scales += sizeof(float);
      at_.buckets += plan.bucketBytes.size();
      at_.codes += format::codeBytes(plan.kind);
    }
    return isCoded(plan.kind);
  }

  DType dtype_;
  std::size_t count_;
  Form form_;
  const std::byte* base_;
  std::size_t tile_;
  format::Sections at_;  // what the next tile of each kind reads
};

struct Survey {
  Encoded encoded;
  format::Sections at;
};

/// Decides about every tile and the form; leaves the tile table at `out`.
Survey survey(const EncodeSpec& spec, DType dtype, const void* in, std::size_t count, std::byte* out) {
  Survey s;
  const std::size_t tiles = format::tilesOf(count);
  std::size_t coded = 0;
  std::size_t rawBytes = 0;
  for (std::size_t tile = 0; tile < tiles; ++tile) {
    const std::uint8_t kind = scalar::planTile(spec, scalar::loadTile(dtype, in, count, tile)).kind;
    storeAt(out, tile, kind);
    if (kind == wire::kZeroTile) ++s.encoded.zeroTiles;
    if (kind == wire::kRawTile) ++s.encoded.rawTiles;
    if (kind == wire::kRawTile) rawBytes += format::rawTileBytes(dtype, format::elementsOf(count, tile));
    if (isCoded(kind)) ++coded;
  }
  s.at = format::sectionsOf(tiles, coded, coded * format::codeBytes(spec.bits), rawBytes);
  const bool smaller = s.at.total < count * bytesOf(dtype);
  s.encoded.form = s.encoded.zeroTiles == tiles ? Form::Zero : smaller ? Form::Tiles : Form::Raw;
  return s;
}

void writeTiles(const EncodeSpec& spec, DType dtype, const void* in, std::size_t count, format::Sections at,
                std::byte* out) {
  const std::size_t tiles = format::tilesOf(count);
  std::memset(out + tiles, 0, at.buckets - tiles);  // scales overwrite what is not padding
  for (std::size_t tile = 0; tile < tiles; ++tile) {
    const TileValues x = scalar::loadTile(dtype, in, count, tile);
    const TilePlan plan = scalar::planTile(spec, x);
    if (plan.kind == wire::kRawTile) {
      const std::size_t bytes = format::elementsOf(count, tile) * bytesOf(dtype);
      std::memcpy(out + at.raw, static_cast<const std::byte*>(in) + tile * kTile * bytesOf(dtype), bytes);
      std::memset(out + at.raw + bytes, 0, format::padded(bytes) - bytes);
      at.raw += format::padded(bytes);
    } else if (isCoded(plan.kind)) {
      const std::uint64_t noise = format::tileNoise(spec.noise.key, spec.noise.first / kTile + tile);
      storeAt(out + at.scales, 0, plan.scale);
      std::memcpy(out + at.buckets, plan.bucketBytes.data(), plan.bucketBytes.size());
      scalar::encodeTile(plan, spec.rounding, noise, x, out + at.codes);
      at.scales += sizeof(float);
      at.buckets += plan.bucketBytes.size();
      at.codes += format::codeBytes(plan.kind);
    }
  }
}

Encoded encodeInDefault(const EncodeSpec& spec, DType dtype, const void* in, std::size_t count, std::byte* out) {
  Survey s = survey(spec, dtype, in, count, out);
  if (s.encoded.form == Form::Raw) {
    s.encoded.bytes = count * bytesOf(dtype);
    std::memcpy(out, in, s.encoded.bytes);
  } else if (s.encoded.form == Form::Tiles) {
    s.encoded.bytes = s.at.total;
    writeTiles(spec, dtype, in, count, s.at, out);
  }
  return s.encoded;
}

void decodeInDefault(const Payload& payload, DType dtype, std::size_t count, void* out) {
  Reader reader(Contribution{nullptr, payload}, dtype, count);
  TileValues x;
  for (std::size_t tile = 0; tile < format::tilesOf(count); ++tile) {
    const auto store = reader.next(x) ? scalar::storeSaturated : scalar::storeElement;
    const std::size_t elements = format::elementsOf(count, tile);
    for (std::size_t i = 0; i < elements; ++i) store(dtype, x[i], out, tile * kTile + i);
  }
}

/// sum[] (which starts at element firstTile * kTile) grows by the part's values in `tiles` tiles.
void addPart(const Contribution& part, DType dtype, std::size_t count, std::size_t firstTile, std::size_t tiles,
             float* sum) {
  Reader reader(part, dtype, count, firstTile);
  TileValues x;
  for (std::size_t tile = 0; tile < tiles; ++tile) {
    reader.next(x);
    const std::size_t elements = format::elementsOf(count, firstTile + tile);
    for (std::size_t i = 0; i < elements; ++i) sum[tile * kTile + i] = scalar::canonical(sum[tile * kTile + i] + x[i]);
  }
}

/// own[] = the parts' sum, rounded to the dtype. Works on a few tiles at a time, so that `own` may be the memory of an
/// exact part.
void sumParts(std::span<const Contribution> parts, DType dtype, std::size_t count, void* own) {
  constexpr std::size_t kTiles = 16;
  float sum[kTiles * kTile];
  for (std::size_t firstTile = 0; firstTile < format::tilesOf(count); firstTile += kTiles) {
    const std::size_t first = firstTile * kTile;
    const std::size_t elements = std::min(kTiles * kTile, count - first);
    // -0 is the neutral element: -0 + x has the bits of x, so the sum starts from the first part's value.
    std::fill_n(sum, elements, parts.empty() ? 0.0F : -0.0F);
    for (const Contribution& part : parts) addPart(part, dtype, count, firstTile, format::tilesOf(elements), sum);
    for (std::size_t i = 0; i < elements; ++i) scalar::storeElement(dtype, sum[i], own, first + i);
  }
}

Encoded encode(const EncodeSpec& spec, DType dtype, const void* in, std::size_t count, std::byte* out) noexcept {
  const DefaultEnvironment environment;
  return encodeInDefault(spec, dtype, in, count, out);
}

void decode(const Payload& payload, DType dtype, std::size_t count, void* out) noexcept {
  const DefaultEnvironment environment;
  decodeInDefault(payload, dtype, count, out);
}

void decodeAdd(const Payload& payload, DType dtype, std::size_t count, float* sum) noexcept {
  const DefaultEnvironment environment;
  addPart(Contribution{nullptr, payload}, dtype, count, 0, format::tilesOf(count), sum);
}

Encoded reduce(const EncodeSpec& spec, DType dtype, std::span<const Contribution> parts, std::size_t count,
               std::byte* out, void* own) noexcept {
  const DefaultEnvironment environment;
  sumParts(parts, dtype, count, own);
  const Encoded encoded = encodeInDefault(spec, dtype, own, count, out);
  decodeInDefault(Payload{encoded.form, {out, encoded.bytes}}, dtype, count, own);
  return encoded;
}

void clear(void* memory, std::size_t bytes) noexcept { std::memset(memory, 0, bytes); }

std::size_t contentElements(DType dtype, const void* in, std::size_t count) noexcept {
  const auto* bytes = static_cast<const std::byte*>(in);
  std::size_t left = count * bytesOf(dtype);
  while (left > 0 && bytes[left - 1] == std::byte{0}) --left;
  return (left + bytesOf(dtype) - 1) / bytesOf(dtype);
}

}  // namespace

const Kernels kScalar{"scalar", encode, decode, decodeAdd, reduce, clear, contentElements};

}  // namespace cgx::codec
