// Every byte that crosses a link, part 1: rules for all of it and the header of a collective message.
// Part 2, the payload of tiles: wire_tiles.h. Part 3, handles, hellos and frames of the transports: wire_link.h.
//
// All fields are little-endian, fixed width and naturally aligned; padding is explicit and zero. Version 1,
// provisional.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace cgx::wire {

inline constexpr std::uint16_t kVersion = 1;

/// First bytes of every message of a collective; the payload follows. 64 bytes, so that the payload is aligned as the
/// message is.
///
///   offset  bytes  field
///        0      4  magic         "CGXM"
///        4      2  version       kVersion
///        6      1  phase         1 contribution (to the owner), 2 result (from the owner)
///        7      1  kind          1 all-reduce, 2 all-gather, 3 reduce-scatter
///        8      1  dtype         0 fp32, 1 fp16, 2 bf16, 3 untyped bytes
///        9      1  form          0 zero (no payload), 1 tiles, 2 raw
///       10      1  flags         bit 0: exact, nothing in it was quantised
///       11      1  reserved      0
///       12      2  source        rank that sends
///       14      2  owner         rank whose piece this is (one phase: the receiver)
///       16      8  operation     running number of the operation on the communicator, from 0
///       24      8  count         elements of the whole operation
///       32      8  first         index in the operation of the first element of this message
///       40      4  elements      in this message
///       44      4  payloadBytes
///       48      4  configuration hash of the settings that shape the plan
///       52      4  block         index of this block in the owner's piece
///       56      8  reserved      0
///
/// Integrity is the transport's: frames carry a checksum over the whole message (wire_link.h).
struct MessageHeader {
  static constexpr std::uint32_t kMagic = 0x4d584743;  // "CGXM"
  static constexpr std::uint8_t kExact = 1;
  static constexpr std::uint8_t kUntyped = 3;

  std::uint32_t magic = kMagic;
  std::uint16_t version = kVersion;
  std::uint8_t phase = 0;
  std::uint8_t kind = 0;
  std::uint8_t dtype = 0;
  std::uint8_t form = 0;
  std::uint8_t flags = 0;
  std::uint8_t reserved0 = 0;
  std::uint16_t source = 0;
  std::uint16_t owner = 0;
  std::uint64_t operation = 0;
  std::uint64_t count = 0;
  std::uint64_t first = 0;
  std::uint32_t elements = 0;
  std::uint32_t payloadBytes = 0;
  std::uint32_t configuration = 0;
  std::uint32_t block = 0;
  std::uint64_t reserved1 = 0;
};
static_assert(sizeof(MessageHeader) == 64 && std::has_unique_object_representations_v<MessageHeader>);

/// What a rank tells rank 0 when a communicator is made: who it is, what shapes its plans, and whether it can take
/// part. 256 bytes.
struct Card {
  static constexpr std::uint32_t kMagic = 0x43584743;  // "CGXC"

  std::uint32_t magic = kMagic;
  std::uint16_t version = kVersion;
  std::uint16_t rank = 0;
  std::uint16_t ranks = 0;
  std::uint8_t ready = 0;      // 1: its mesh is complete; 0: `text` says why it cannot take part
  std::uint8_t rounding = 0;   // does not shape the plan; compared to warn
  std::uint32_t bits = 0;      // likewise
  std::uint64_t minBytes = 0;  // likewise
  std::uint64_t blockElements = 0;
  std::uint64_t onePhaseBytes = 0;
  std::uint64_t ordinal = 0;  // communicators that this process listened for before
  std::uint8_t mode = 0;      // Mode, Comms and the job's ranks: from these the tuner chooses, on each rank by itself
  std::uint8_t comms = 0;
  std::uint16_t zero = 0;
  std::uint32_t worldRanks = 0;
  char text[200] = {};  // ends with a zero
};
static_assert(sizeof(Card) == 256 && std::has_unique_object_representations_v<Card>);

/// Rank 0's answer to all. 256 bytes.
struct Verdict {
  static constexpr std::uint32_t kMagic = 0x56584743;  // "CGXV"

  std::uint32_t magic = kMagic;
  std::uint16_t version = kVersion;
  std::uint16_t ready = 0;    // 1: go; 0: nobody does, `text` says why
  std::uint64_t ordinal = 0;  // rank 0's
  char text[240] = {};
};
static_assert(sizeof(Verdict) == 256 && std::has_unique_object_representations_v<Verdict>);

/// What a rank says when it dials another one of the mesh. 16 bytes.
struct MeshHello {
  static constexpr std::uint32_t kMagic = 0x48584743;  // "CGXH"

  std::uint32_t magic = kMagic;
  std::uint16_t version = kVersion;
  std::uint16_t ranks = 0;
  std::uint16_t from = 0;
  std::uint16_t to = 0;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(MeshHello) == 16 && std::has_unique_object_representations_v<MeshHello>);

}  // namespace cgx::wire
