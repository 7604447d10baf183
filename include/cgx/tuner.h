// What an all-reduce costs by NCCL's algorithms and by ours, in NCCL's microseconds, and the choice that follows from
// it. Pure: arguments, settings and compiled-in constants, so that every rank chooses alike. Measures nothing, knows no
// ABI and nothing of the host that it runs on.
#pragma once

#include <cmath>
#include <cstddef>
#include <optional>

#include "cgx/settings.h"

namespace cgx::tuner {

/// NCCL's numbers (ncclFunc_t, NCCL_ALGO_*, NCCL_PROTO_*; nccl_common.h and nccl_tuner.h, 2.21 to 2.30).
enum class Func : int { Broadcast = 0, Reduce = 1, AllGather = 2, ReduceScatter = 3, AllReduce = 4 };
enum class Algorithm : int { Tree, Ring, CollnetDirect, CollnetChain, Nvls, NvlsTree, Pat };
enum class Protocol : int { Ll, Ll128, Simple };
inline constexpr int kAlgorithms = 7;  // 6 before NCCL 2.23
inline constexpr int kProtocols = 3;

/// A view of the table that NCCL gives its tuner and takes its choice from, the least cost: microseconds, negative
/// where NCCL does not offer the combination (writing there crashes NCCL). Owns nothing.
class Table {
 public:
  Table(float* costs, int algorithms, int protocols) noexcept
      : costs_(costs), algorithms_(algorithms), protocols_(protocols) {}

  /// Whether it is laid out as in the versions that we know; of any other nothing is read or written.
  bool known() const noexcept {
    return costs_ != nullptr && (algorithms_ == 6 || algorithms_ == 7) && protocols_ == kProtocols;
  }
  int algorithms() const noexcept { return algorithms_; }
  float& at(Algorithm a, Protocol p) const noexcept {
    return costs_[static_cast<int>(a) * protocols_ + static_cast<int>(p)];
  }
  bool offers(Algorithm a, Protocol p) const noexcept {
    return static_cast<int>(a) < algorithms_ && std::isfinite(at(a, p)) && at(a, p) >= 0;
  }

 private:
  float* costs_;
  int algorithms_;
  int protocols_;
};

/// A communicator as NCCL describes it: GPUs, and the hosts that they are on.
struct Group {
  std::size_t ranks = 0;
  std::size_t nodes = 0;
};

/// One collective, or several that the application grouped: their bytes are summed then.
struct Call {
  Func func = Func::AllReduce;
  std::size_t bytes = 0;
  int pipeOps = 1;  // how many are grouped
};

/// Whether CGX_COMMS means a communicator of `group`. Unknown: it asks for the job's own, and nobody said how many
/// ranks the job has (or fewer than the communicator has).
enum class Standing { Named, NotNamed, Unknown };
Standing standingOf(const Settings& settings, const Group& group) noexcept;
/// What collnet connect knows, which sees one rank of each node: true when a communicator over `nodes` is certainly not
/// the job's own while CGX_COMMS=world.
bool surelyNotTheWorld(const Settings& settings, int nodes) noexcept;

/// Microseconds that a sum over `group` takes through our collnet over links of `linkGBps` (10^9 bytes/s a node and
/// direction). `elementBytes`: 4 for fp32, 2 for fp16 and bf16.
double collnetUs(const Settings& settings, const Group& group, std::size_t bytes, std::size_t elementBytes,
                 double linkGBps) noexcept;
/// The link's speed, read out of NCCL's cost of a ring; 0 where the table offers none.
double linkGBpsOf(const Table& table, const Group& group, const Call& call) noexcept;

/// Fills a table with NCCL's own estimate of an all-reduce (restated from its src/graph/tuning.cc, 2.30.7; GPUs of
/// compute capability 8 without NVLink) for links of `linkGBps`. CollnetChain only with `collnet`.
void estimateNccl(const Group& group, std::size_t bytes, int pipeOps, double linkGBps, bool collnet,
                  float (&costs)[kAlgorithms][kProtocols]) noexcept;

/// Rewrites costs so that NCCL's choice of the least becomes the one that the settings and the model ask for. Entries
/// that NCCL does not offer stay as they are; what is written is finite, not negative and below an hour; at least one
/// entry keeps its cost. Does nothing on one node, to an unknown table or to an unknown function.
///
/// An all-reduce above CGX_MIN_BYTES of a communicator that CGX_COMMS means goes to collnet: always, or where the model
/// says that it wins. Everything else goes to what NCCL has without us. LL128 loses, as sockets do not keep its order.
/// Elements are taken to be of 2 bytes, which gain least: NCCL does not say.
void steer(const Settings& settings, const Group& group, const Call& call, const Table& table) noexcept;

/// The entry that NCCL takes; nullopt when nothing is offered.
struct Choice {
  Algorithm algorithm = Algorithm::Ring;
  Protocol protocol = Protocol::Simple;
  float us = 0;
  bool operator==(const Choice&) const = default;
};
std::optional<Choice> cheapest(const Table& table) noexcept;
/// CollnetDirect, CollnetChain and, between nodes, NVLS: these carry their sums through us.
bool isCollnet(Algorithm algorithm) noexcept;

/// Steering without a table (tuner ABI v2, NCCL 2.21): what to choose, or nullopt to leave it to NCCL. Links are taken
/// for 10 Gb/s, as NCCL takes those that do not say their speed.
std::optional<Choice> chooseBlind(const Settings& settings, const Group& group, const Call& call,
                                  bool collnetOffered) noexcept;

/// The size of CollnetChain's chunk, in bytes on each of `channels`, of which one call of ours is made: 32 KiB to 512
/// KiB, a power of two. NCCL's own `chunkBytes` where the number of channels is unknown.
std::size_t chunkBytesFor(const Group& group, std::size_t bytes, int channels, std::size_t chunkBytes) noexcept;

}  // namespace cgx::tuner
