// Finishing and opening payloads for the fast codec. Knows sections and sizes, no arithmetic on elements.
#include "codec/simd_payload.h"

namespace cgx::codec::simd {

Encoded PayloadWriter::finish(const void* elements) noexcept {
  Encoded e;
  e.zeroTiles = static_cast<std::uint32_t>(zero_);
  e.rawTiles = static_cast<std::uint32_t>(raw_);
  if (zero_ == tiles_) return e;
  const std::size_t elementBytes = bytesOf(dtype_);
  const auto* const from = static_cast<const std::byte*>(elements);
  const bool lastIsRaw = kind(tiles_ - 1) == wire::kRawTile;
  std::size_t rawBytes = raw_ * kTile * elementBytes;
  if (lastIsRaw)
    rawBytes += format::rawTileBytes(dtype_, format::elementsOf(count_, tiles_ - 1)) - kTile * elementBytes;
  const format::Sections at = format::sectionsOf(tiles_, coded_, codeBytes_, rawBytes);
  if (at.total >= count_ * elementBytes) {
    e.form = Form::Raw;
    e.bytes = count_ * elementBytes;
    std::memcpy(out_, from, e.bytes);
    return e;
  }
  e.form = Form::Tiles;
  e.bytes = at.total;
  std::memset(out_ + tiles_, 0, at.scales - tiles_);
  const std::size_t scaleEnd = at.scales + coded_ * sizeof(float);
  std::memset(out_ + scaleEnd, 0, at.buckets - scaleEnd);
  if (coded_ != tiles_) {
    std::memmove(out_ + at.buckets, out_ + buckets_, coded_ * wire::kTileBuckets);
    std::memmove(out_ + at.codes, out_ + codes_, codeBytes_);
  }
  std::byte* to = out_ + at.raw;
  for (std::size_t tile = 0; raw_ != 0 && tile < tiles_; ++tile) {
    if (kind(tile) != wire::kRawTile) continue;
    const std::size_t bytes = format::elementsOf(count_, tile) * elementBytes;
    std::memcpy(to, from + tile * kTile * elementBytes, bytes);
    std::memset(to + bytes, 0, format::padded(bytes) - bytes);
    to += format::padded(bytes);
  }
  return e;
}

PayloadReader::PayloadReader(const Contribution& part, DType dtype, std::size_t count) noexcept : dtype_(dtype) {
  if (part.exact != nullptr) {
    form_ = Form::Raw;
    raw_ = static_cast<const std::byte*>(part.exact);
    return;
  }
  form_ = part.payload.form;
  const std::byte* const base = part.payload.bytes.data();
  if (form_ == Form::Raw) raw_ = base;
  if (form_ != Form::Tiles) return;
  const std::size_t tiles = format::tilesOf(count);
  std::size_t coded = 0;
  std::size_t codeBytes = 0;
  for (std::size_t tile = 0; tile < tiles; ++tile) {
    const auto kind = std::to_integer<std::uint8_t>(base[tile]);
    if (!isCoded(kind)) continue;
    ++coded;
    codeBytes += format::codeBytes(kind);
  }
  const format::Sections at = format::sectionsOf(tiles, coded, codeBytes, 0);
  table_ = base;
  scales_ = base + at.scales;
  buckets_ = base + at.buckets;
  codes_ = base + at.codes;
  raw_ = base + at.raw;
}

Encoded encodeExact(DType dtype, const void* in, std::size_t count, std::byte* out) noexcept {
  PayloadWriter writer(dtype, count, out);
  const auto* const from = static_cast<const std::byte*>(in);
  for (std::size_t tile = 0; tile < writer.tiles(); ++tile) {
    const std::byte* const at = from + tile * kTile * bytesOf(dtype);
    const std::size_t bytes = format::elementsOf(count, tile) * bytesOf(dtype);
    // All bytes are equal to the first, and that is zero: one comparison of the memory with itself, a byte further.
    const bool zero = at[0] == std::byte{0} && std::memcmp(at, at + 1, bytes - 1) == 0;
    writer.add(zero ? wire::kZeroTile : wire::kRawTile, 0);
  }
  return writer.finish(in);
}

}  // namespace cgx::codec::simd
