// An all-reduce as NCCL drives it, by the ways that its tuner chooses from: a ring over our net half, or calls of
// channels x chunk through our collnet half. For time only: memory is touched as it would be, sums are not checked.
#pragma once

#include <cstddef>
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

/// NCCL's ring with protocol Simple: buffers of 4 MiB a channel, messages of at most 1 MiB, two for each chunk. LL and Tree are not here.
std::unique_ptr<Way> ring(int channels);

/// CollnetChain with one GPU a node. `chunkBytes` 0: as NCCL chooses it (src/enqueue.cc, 2.30.7).
std::unique_ptr<Way> collnet(int channels, std::size_t chunkBytes, ncclDataType_t dtype);

/// NCCL's choice of the chunk, in bytes on each channel.
std::size_t chunkOf(std::size_t bytes, int channels);

}  // namespace cgx::bench
