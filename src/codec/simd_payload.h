// Where the fast codec is in a payload: what is written next, what is read next. Compiled for the baseline and shared
// by all targets; knows sections and sizes, no arithmetic on elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cgx/codec.h"
#include "codec/format.h"

namespace cgx::codec::simd {

constexpr bool isCoded(std::uint8_t kind) { return kind != wire::kZeroTile && kind != wire::kRawTile; }

/// A tile as it lies in a payload.
struct PayloadTile {
  std::uint8_t kind = wire::kZeroTile;
  float scale = 0;
  const std::uint8_t* buckets = nullptr;
  const std::byte* data = nullptr;  // codes, or raw elements
};

/// Walks the tiles of a validated payload, or of exact elements, in order.
class PayloadReader {
 public:
  PayloadReader() = default;
  PayloadReader(const Contribution& part, DType dtype, std::size_t count) noexcept;

  PayloadReader(const std::byte* table, const std::byte* scales, const std::byte* buckets,
                const std::byte* codes) noexcept
      : form_(Form::Tiles), table_(table), scales_(scales), buckets_(buckets), codes_(codes) {}

  /// The next tile, which has `elements` elements.
  PayloadTile next(std::size_t elements) noexcept {
    PayloadTile t;
    switch (form_) {
      case Form::Zero:
        return t;
      case Form::Raw: {
        t.kind = wire::kRawTile;
        t.data = raw_;
        raw_ += elements * bytesOf(dtype_);
        return t;
      }
      case Form::Tiles:
        break;
    }
    t.kind = std::to_integer<std::uint8_t>(*table_++);
    if (t.kind == wire::kRawTile) {
      t.data = raw_;
      if (raw_ != nullptr) raw_ += format::rawTileBytes(dtype_, elements);
    } else if (t.kind != wire::kZeroTile) {
      std::memcpy(&t.scale, scales_, sizeof(float));
      t.buckets = reinterpret_cast<const std::uint8_t*>(buckets_);
      t.data = codes_;
      scales_ += sizeof(float);
      buckets_ += wire::kTileBuckets;
      codes_ += format::codeBytes(t.kind);
    }
    return t;
  }

 private:
  Form form_ = Form::Zero;
  DType dtype_ = DType::F32;
  const std::byte* table_ = nullptr;
  const std::byte* scales_ = nullptr;
  const std::byte* buckets_ = nullptr;
  const std::byte* codes_ = nullptr;
  const std::byte* raw_ = nullptr;
};

/// Writes a Tiles payload in one pass over the elements. How many tiles will be coded is not known before the last, so
/// sections start where they would if all were, and finish() moves them together; raw tiles are copied last, from
/// elements that are still there.
class PayloadWriter {
 public:
  PayloadWriter(DType dtype, std::size_t count, std::byte* out) noexcept
      : out_(out), count_(count), tiles_(format::tilesOf(count)), dtype_(dtype) {
    scales_ = format::padded(tiles_);
    buckets_ = scales_ + format::padded(tiles_ * sizeof(float));
    codes_ = buckets_ + tiles_ * wire::kTileBuckets;
  }

  /// Where the bucket bytes of the next coded tile go; whole-tile room, also when the tile then is not coded.
  std::uint8_t* buckets() const noexcept {
    return reinterpret_cast<std::uint8_t*>(out_ + buckets_ + coded_ * wire::kTileBuckets);
  }

  /// Adds the next tile. Returns where its codes go if it is coded, else nullptr.
  std::byte* add(std::uint8_t kind, float scale) noexcept {
    out_[added_++] = std::byte{kind};
    if (!isCoded(kind)) {
      ++(kind == wire::kZeroTile ? zero_ : raw_);
      return nullptr;
    }
    std::memcpy(out_ + scales_ + coded_ * sizeof(float), &scale, sizeof(float));
    std::byte* const at = out_ + codes_ + codeBytes_;
    ++coded_;
    codeBytes_ += format::codeBytes(kind);
    return at;
  }

  /// True once no further tile can make the payload as large as the raw elements.
  bool smallerThanRaw() const noexcept {
    const std::size_t raw = count_ * bytesOf(dtype_);
    const std::size_t left = raw - (added_ < tiles_ ? added_ * kTile * bytesOf(dtype_) : raw);
    const std::size_t used = raw_ * kTile * bytesOf(dtype_);
    const std::size_t scaleBytes = format::padded(coded_ * sizeof(float)) + coded_ * wire::kTileBuckets;
    return scales_ + scaleBytes + codeBytes_ + used + left + wire::kSectionAlign < raw;
  }

  std::size_t tiles() const noexcept { return tiles_; }
  /// A reader of the tiles added so far; raw ones have no data yet.
  PayloadReader written() const noexcept { return PayloadReader(out_, out_ + scales_, out_ + buckets_, out_ + codes_); }

  /// Makes the payload whole. `elements` holds what raw tiles, or the whole payload if it travels raw, consist of.
  Encoded finish(const void* elements) noexcept;

 private:
  std::uint8_t kind(std::size_t tile) const noexcept { return std::to_integer<std::uint8_t>(out_[tile]); }

  std::byte* out_;
  std::size_t count_;
  std::size_t tiles_;
  std::size_t scales_;
  std::size_t buckets_;
  std::size_t codes_;
  std::size_t added_ = 0;
  std::size_t coded_ = 0;
  std::size_t zero_ = 0;
  std::size_t raw_ = 0;
  std::size_t codeBytes_ = 0;
  DType dtype_;
};

/// Exact mode: zero and raw tiles only.
Encoded encodeExact(DType dtype, const void* in, std::size_t count, std::byte* out) noexcept;

}  // namespace cgx::codec::simd
