// Collectives over a mesh of transport connections: what NCCL's collnet calls translate to. Knows ranks, operations and
// the codec; knows no NCCL types and no sockets.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "cgx/codec.h"
#include "cgx/settings.h"
#include "cgx/status.h"
#include "cgx/transport.h"

namespace cgx::collective {

/// What connect() needs. `problem` is a reason why this rank cannot take part (a bad setting, say): it is reported to
/// the others, so that connect fails on every rank alike instead of on one.
struct ConnectSpec {
  transport::Transport* transport = nullptr;
  transport::Listener* listener = nullptr;
  int device = 0;
  std::span<const transport::Handle> handles;  // one a rank
  int rank = 0;
  Settings settings;
  bool exact = false;  // this rank compresses nothing, whatever CGX_BITS says; ranks may differ, sums stay the same
  Status problem;
  std::uint64_t ordinal = 0;  // how many communicators this process listened for before; rank 0's counts
};

/// A piece of memory of an all-gather's output or a reduce-scatter's input.
struct Part {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

struct Request;  // opaque; one of the communicator's fixed pool

/// Calls of one kind, and the bytes of the user's data in them.
struct Calls {
  std::uint64_t operations = 0;
  std::uint64_t inputBytes = 0;
};

/// All-reduces of about one size.
struct SizeCounters {
  std::uint64_t operations = 0;  // called
  std::uint64_t inputBytes = 0;
  std::uint64_t wireBytes = 0;
  std::uint64_t nanoseconds = 0;  // from call to end, of those that ended
};
/// Class 0 holds all-reduces of at most 1 KiB, class k those of at most 2^k KiB, the last one everything above.
inline constexpr std::size_t kSizeClasses = 24;
constexpr std::size_t sizeClassOf(std::uint64_t bytes) noexcept {
  std::size_t k = 0;
  while (k + 1 < kSizeClasses && bytes > (std::uint64_t{1024} << k)) ++k;
  return k;
}

/// Counters since connect, of this rank alone; `wireBytes` counts what was handed to the transport, message headers
/// included. Tiles are those of this rank's contributions, once for each message that carries them. Times add up over
/// threads and messages, so their sum may exceed the time that passed.
struct Counters {
  std::uint64_t operations = 0;
  std::uint64_t inputBytes = 0;
  std::uint64_t wireBytes = 0;
  std::uint64_t messages = 0;
  std::uint64_t zeroTiles = 0;
  std::uint64_t rawTiles = 0;

  Calls allReduces{};
  Calls allGathers{};
  Calls reduceScatters{};
  std::uint64_t smallOperations = 0;  // all-reduces to be compressed that travelled exact, as their content is small
  std::uint64_t codedTiles = 0;       // that travel as codes
  std::uint64_t exactTiles = 0;       // of rawTiles: in operations that travel exact
  std::uint64_t wholeTiles = 0;       // not of rawTiles: in a message sent whole, as codes would not be smaller
  std::uint64_t nonFiniteTiles = 0;   // of rawTiles, not of exactTiles: with an Inf or a NaN
  std::uint64_t sampledTiles = 0;     // of codedTiles: compared with the exact values
  double errorSquares = 0;            // sum over sampled elements: (coded - exact)^2
  double valueSquares = 0;            // exact^2; errorSquares / valueSquares is the NMSE of one quantisation
  std::uint64_t encodeNs = 0;         // contributions: reading, coding, sampling and clearing them
  std::uint64_t reduceNs = 0;         // decoding, adding and coding the sum; for an all-gather the copy
  std::uint64_t decodeNs = 0;         // results
  std::uint64_t wireNs = 0;           // messages, from handing them to the transport until they were sent
  std::array<SizeCounters, kSizeClasses> sizes{};
};

/// Driven by one thread at a time for posts and test; register, deregister and close may come from another thread.
class Communicator {
 public:
  virtual ~Communicator() = default;  // closes

  /// Memory that operations may use. The first region seen twice in a row right after connect is NCCL's staging: it is
  /// cleared then, and its send slots are cleared again after each use. Everything else is the user's and is only read
  /// (send) or written (receive).
  virtual Status registerMemory(void* data, std::size_t bytes, void** handle) = 0;
  /// After it returns nothing of the region is touched any more, also when operations were in flight (they fail).
  virtual Status deregisterMemory(void* handle) = 0;

  /// Starts a sum over all ranks. Ok with *request == nullptr: no room now, ask again. Returns within 20 us.
  virtual Status allReduce(const void* send, void* recv, std::size_t count, codec::DType dtype, Request** request) = 0;
  /// Exact, untyped. Gathers bytes [windowOffset, windowOffset + windowBytes) of the concatenation of all ranks'
  /// `bytesPerRank`.
  virtual Status allGather(const void* send, std::span<const Part> recv, std::size_t bytesPerRank,
                           std::size_t windowOffset, std::size_t windowBytes, Request** request) = 0;
  /// Exact: fp32 accumulation in rank order, rounded once.
  virtual Status reduceScatter(std::span<const Part> send, void* recv, std::size_t bytesPerRank,
                               std::size_t windowOffset, std::size_t windowBytes, codec::DType dtype,
                               Request** request) = 0;

  /// Pending: still running. Ok: done, *bytes is what NCCL expects, the request is free again. Returns within 20 us.
  virtual Status test(Request* request, std::size_t* bytes) = 0;

  virtual Counters counters() const = 0;
  /// Stops everything in less than a second without waiting for a peer. Idempotent.
  virtual void close() noexcept = 0;
};

/// One blocking collective call, bounded by Settings::connectTimeout. Succeeds on all ranks or on none; the error says
/// which rank and why.
Result<std::unique_ptr<Communicator>> connect(const ConnectSpec& spec);

/// Staging that a communicator of `ranks` allocates, in bytes: the documented formula, printed by `cgx info`.
std::size_t stagingBytes(const Settings& settings, int ranks) noexcept;
/// Largest operation in bytes that allReduce takes in one call (NCCL's maxCollBytes).
inline constexpr std::size_t kMaxOperationBytes = std::size_t{1} << 40;

}  // namespace cgx::collective
