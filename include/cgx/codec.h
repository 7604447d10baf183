// The codec on host memory: elements in, payload bytes out and back. One table of functions a SIMD target, all
// byte-identical. Knows numbers only: no ranks, no links. The payload layout is in wire_tiles.h, the numerics contract
// in docs/codec.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "cgx/settings.h"
#include "cgx/status.h"

namespace cgx::codec {

enum class DType : std::uint8_t { F32 = 0, F16 = 1, BF16 = 2 };
constexpr std::size_t bytesOf(DType dtype) { return dtype == DType::F32 ? 4 : 2; }

inline constexpr std::size_t kTile = 512;   // elements with one width and one scale
inline constexpr std::size_t kBucket = 32;  // elements with one step
inline constexpr int kExactBits = 32;       // "do not quantise": zero and raw tiles only

/// How a payload is laid out; travels in the message header.
enum class Form : std::uint8_t {
  Zero = 0,   // no payload: every element is +0
  Tiles = 1,  // tile table, scales, bucket bytes, codes, raw tiles
  Raw = 2,    // the elements themselves; chosen whenever Tiles would not be smaller
};

/// Rounding noise for element i of an operation is a function of (key, i) alone, so it does not depend on how the
/// operation is cut.
struct Noise {
  std::uint64_t key = 0;    // from noiseKey()
  std::uint64_t first = 0;  // index in the operation of the first element of this call; a multiple of kTile
};
/// One key for each (seed, communicator, operation, rank, phase).
std::uint64_t noiseKey(std::uint64_t seed, std::uint64_t communicator, std::uint64_t operation, std::uint32_t rank,
                       std::uint32_t phase) noexcept;

struct EncodeSpec {
  int bits = 4;  // 1..8, or kExactBits
  Rounding rounding = Rounding::Nearest;
  Noise noise;
};

struct Encoded {
  Form form = Form::Zero;
  std::size_t bytes = 0;        // of payload written
  std::uint32_t zeroTiles = 0;  // of the tile table, which Form::Raw was measured against too
  std::uint32_t rawTiles = 0;
};

/// A payload that validate() has accepted; `bytes` may be unaligned.
struct Payload {
  Form form = Form::Zero;
  std::span<const std::byte> bytes;
};

/// Room that encode and reduce need at `out` for `count` elements: at least the raw size, with slack for vector stores.
std::size_t payloadCapacity(DType dtype, std::size_t count) noexcept;
/// Checks every length and table byte of a payload from a peer before anything decodes it; never reads outside
/// `payload.bytes`.
Status validate(const Payload& payload, DType dtype, std::size_t count);

/// One rank's part of a reduction: what it sent, or (own) its exact values.
struct Contribution {
  const void* exact = nullptr;  // not null: `count` elements of the dtype; `payload` is ignored
  Payload payload;
};

/// The codec for one SIMD target. Pointers need only the dtype's alignment; `out` payloads are 64-byte aligned. Every
/// function sets the floating-point environment to default on entry and restores the caller's, allocates nothing and
/// may run on many threads at once.
struct Kernels {
  const char* name;  // "scalar", "sse4", "avx2", "avx512", "neon"

  /// Quantises `count` elements at `in` (never written) into `out` (payloadCapacity bytes).
  Encoded (*encode)(const EncodeSpec& spec, DType dtype, const void* in, std::size_t count, std::byte* out) noexcept;

  /// out[i] = decoded element, rounded to the dtype, saturated at its largest finite value; NaNs canonical.
  void (*decode)(const Payload& payload, DType dtype, std::size_t count, void* out) noexcept;

  /// sum[i] += decoded element, in fp32, before it is rounded to the dtype. NaNs in `sum` must be canonical, and are
  /// afterwards.
  void (*decodeAdd)(const Payload& payload, DType dtype, std::size_t count, float* sum) noexcept;

  /// The owner's fused pass: adds `parts` in order in fp32, starting from the first part's value, rounds to the dtype,
  /// encodes the sum by `spec` into `out`, and writes what every other rank will decode from it to `own` (which may be
  /// the memory of an exact part).
  Encoded (*reduce)(const EncodeSpec& spec, DType dtype, std::span<const Contribution> parts, std::size_t count,
                    std::byte* out, void* own) noexcept;

  /// Zero-fills with stores that leave the cache alone.
  void (*clear)(void* memory, std::size_t bytes) noexcept;

  /// Length in elements up to and including the last element with a bit set; 0 when all bits are zero. Reads from the
  /// end.
  std::size_t (*contentElements)(DType dtype, const void* in, std::size_t count) noexcept;
};

/// For whoever checks a compressed sum (formula: docs/codec.md). contributions[k] are rank k's `count` elements, each
/// exactly one of the dtype's; whole tiles from the operation's first element on, so that a caller may take them a few
/// tiles at a time. exact[i] is their sum in fp64, bound[i] how far the all-reduce's result may be from it: two
/// quantisations and every rounding. The bound is infinite where a sum is not finite or may round to Inf; a result of
/// all-finite contributions is never NaN for all that, unless sums of opposite Infs meet.
void allReduceBound(const EncodeSpec& spec, DType dtype, std::span<const float* const> contributions, std::size_t count,
                    double* exact, double* bound) noexcept;

/// Targets that this CPU can run, best first; the last is always "scalar".
std::span<const Kernels* const> targets() noexcept;
/// By Settings::simd: "auto" or a target's name; an unknown or unsupported name is Code::Invalid and lists what there
/// is.
Result<const Kernels*> select(std::string_view simd);

}  // namespace cgx::codec
