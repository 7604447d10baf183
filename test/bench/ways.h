// An all-reduce as NCCL drives it, by the ways that its tuner chooses from: a ring over our net half, or calls of
// channels x chunk through our collnet half. For time only: what a GPU would do (sums in the ring, copies to and from
// staging) is left out, and results are not looked at.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "support/nccl_host/coll_comm.h"
#include "support/nccl_host/net_peer.h"

namespace cgx::bench {

class Way {
 public:
  virtual ~Way() = default;
  virtual bool open(host::Rank& rank) = 0;
  /// One all-reduce of `data`, in place. False: it failed; the rank has reported why.
  virtual bool run(std::span<std::byte> data) = 0;
};

/// NCCL's ring with protocol Simple: buffers of 4 MiB a channel, messages of at most 1 MiB, two for each chunk. LL and
/// Tree are not here.
std::unique_ptr<Way> ring(int channels);

/// Bytes of a chunk on each channel, by the bytes of the all-reduce and the number of channels.
using ChunkRule = std::function<std::size_t(std::size_t, int)>;
/// NCCL's own (src/enqueue.cc, 2.30.7), for one GPU a node.
std::size_t ncclsChunk(std::size_t bytes, int channels);

/// CollnetChain with one GPU a node.
std::unique_ptr<Way> collnet(int channels, ChunkRule chunk, ncclDataType_t dtype);

}  // namespace cgx::bench
