// Who owns which elements and in which messages they travel: pure arithmetic, the same on every rank. No I/O, no state.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cgx/codec.h"

namespace cgx::collective {

enum class Kind : std::uint8_t { AllReduce = 1, AllGather = 2, ReduceScatter = 3 };
const char* name(Kind kind) noexcept;

/// What is agreed for the life of a communicator and shapes every plan.
struct Limits {
  int ranks = 1;
  std::size_t blockElements =
      64 << 10;  // most elements in one message (for untyped bytes: 4 times as many); a multiple of kTile
  std::size_t onePhaseBytes = 64 << 10;
};

/// What one operation is, in elements; every rank must have the same.
struct Shape {
  Kind kind = Kind::AllReduce;
  codec::DType dtype = codec::DType::F32;  // not used by all-gather, whose elements are bytes
  std::size_t count = 0;                   // elements of the operation; for the other kinds of their window
  std::size_t perRank = 0;                 // all-gather, reduce-scatter: elements of one rank's part of the whole
  std::size_t windowFirst = 0;             // and where the window begins in the whole

  std::size_t elementBytes() const noexcept { return kind == Kind::AllGather ? 1 : codec::bytesOf(dtype); }
};

/// Elements [first, first + elements) of an operation.
struct Range {
  std::size_t first = 0;
  std::size_t elements = 0;
  bool operator==(const Range&) const = default;
};

/// The plan of one operation. A piece is what one rank owns; a block is what one message carries.
///
/// All-reduce: large ones in two phases (every rank sends each piece to its owner, which sends the sum to all), at most
/// bytes / 64 KiB owners, pieces and blocks aligned to tiles; small ones in one (every rank sends everything to
/// everyone). All-gather has only the second phase, reduce-scatter only the first; pieces are what the window covers of
/// each rank's part.
class Plan {
 public:
  Plan() = default;
  Plan(const Limits& limits, const Shape& shape) noexcept;

  bool onePhase() const noexcept { return onePhase_; }
  /// Contributions go to owners / owners send results.
  bool hasContributions() const noexcept { return shape_.kind != Kind::AllGather; }
  bool hasResults() const noexcept { return shape_.kind != Kind::ReduceScatter && !onePhase_; }
  const Shape& shape() const noexcept { return shape_; }

  /// What `rank` owns; in one phase every rank owns everything.
  Range piece(int rank) const noexcept;
  std::size_t blocks(int rank) const noexcept;
  /// Block `index` < blocks(rank).
  Range block(int rank, std::size_t index) const noexcept;

 private:
  std::size_t blockGrains(std::size_t pieceGrains) const noexcept;

  Shape shape_;
  std::size_t ranks_ = 1;
  std::size_t owners_ = 1;
  std::size_t grain_ = codec::kTile;  // block boundaries are multiples of it, in elements
  std::size_t maxGrains_ = 1;         // in one block
  bool onePhase_ = false;
};

/// Block length for a communicator: the largest power of two that keeps staging within Settings::staging, 4 Ki to 64 Ki
/// elements.
std::size_t chooseBlockElements(const Settings& settings, int ranks) noexcept;
/// Messages of one kind that a pair of ranks has in flight in one direction.
inline constexpr std::size_t kWindow = 8;
/// Bytes of one message slot, header included, rounded to pages.
std::size_t slotBytes(std::size_t blockElements) noexcept;
/// Bytes of all slots of a communicator.
std::size_t stagingFor(const Limits& limits) noexcept;

}  // namespace cgx::collective
