// A mesh of TCP connections between the ranks of the reference plugin, moved forward by whoever calls. Knows no NCCL
// call; what becomes of what has arrived is the caller's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "broken/reference.h"
#include "plugin/collnet_api.h"

namespace cgx::broken {

struct Frame {
  std::uint64_t sequence = 0;
  std::uint64_t size = 0;
};

struct Comm;

struct Operation {
  Comm* comm = nullptr;
  std::uint64_t sequence = 0;
  std::vector<std::byte> mine;  // what this rank gives; copied, so the caller's memory is read only in the call
  std::vector<std::vector<std::byte>> theirs;  // by rank
  std::vector<bool> arrived;
  std::vector<std::size_t> headerSent;
  std::vector<std::size_t> dataSent;
  std::size_t reported = 0;
  void (*combine)(Operation&) = nullptr;
  // what combine needs
  std::byte* out = nullptr;
  std::size_t count = 0;
  ncclDataType_t dtype{};
  std::size_t perRank = 0;
  std::size_t windowOffset = 0;
  std::size_t windowBytes = 0;
  bool combined = false;
};

struct Peer {
  int fd = -1;
  Frame frame;
  std::size_t frameDone = 0;
  std::size_t dataDone = 0;
};

struct Comm {
  int rank = 0;
  int ranks = 1;
  bool lost = false;
  std::vector<Peer> peers;  // by rank; the own one unused
  std::deque<std::unique_ptr<Operation>> operations;
  std::uint64_t next = 0;
  std::byte* staging = nullptr;
  std::size_t stagingBytes = 0;
  void* previousRegistration = nullptr;
};

/// Dials the lower ranks and waits for the higher ones, until all have met.
bool meet(Comm& comm, void* handles[], Listener& listener, Clock::time_point deadline);
void destroy(Comm* comm);

/// Sends and receives what can be without waiting; Comm::lost when a peer is gone.
void progress(Comm& comm);
/// All of the operation has left and all has arrived.
bool complete(const Operation& op);

}  // namespace cgx::broken
