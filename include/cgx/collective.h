// Collectives over a mesh of transport connections: what NCCL's collnet calls translate to. Knows ranks, operations and
// the codec; knows no NCCL types and no sockets.
#pragma once

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

/// Counters since connect; `wireBytes` counts what was handed to the transport, message headers included.
struct Counters {
  std::uint64_t operations = 0;
  std::uint64_t inputBytes = 0;
  std::uint64_t wireBytes = 0;
  std::uint64_t messages = 0;
  std::uint64_t zeroTiles = 0;
  std::uint64_t rawTiles = 0;
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
