// One rank's use of the net half, as NCCL's proxy does it: polled connect and accept from one thread, receives posted
// ahead, requests tested in order from a progress thread. Knows NetAbi and Rank; what is found goes to Rank::report.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "support/nccl_host/abi.h"
#include "support/nccl_host/memory.h"
#include "support/nccl_host/rank_runner.h"

namespace cgx::host {

/// Messages from each rank to the next in the ring; sizes and contents follow from the seed, so the receiver knows them
/// too.
struct NetTraffic {
  int messages = 64;
  std::size_t maxBytes = 64 << 10;
  int group = 1;        // receives for each irecv; sends of a group go out in shuffled order, told apart by tags
  int outstanding = 0;  // receives posted ahead; 0: as many as NCCL keeps for the ABI version
  std::uint64_t seed = 1;
  std::vector<std::size_t> sizes = {};  // sizes by message, repeated; empty: drawn, zero and one byte among them
  int dyingRank = -1;                   // kills itself by SIGKILL ...
  int dieAfter = 0;                     // ... after so many received messages
  double lossSeconds = 5;               // within which its neighbours must see an error
};

enum class TrafficEnd { Done, PeerLost, Failed };

class NetPeer {
 public:
  explicit NetPeer(Rank& rank) : rank_(rank) {}
  ~NetPeer() { close(); }
  NetPeer(const NetPeer&) = delete;
  NetPeer& operator=(const NetPeer&) = delete;

  /// dlopen, init, devices, properties.
  bool open(std::uint64_t commId = 1);
  /// listen; handles swapped in `room`; connect to the next rank and accept from the previous in turns; closeListen.
  bool connectRing(int room = 0);
  /// Runs in a thread of its own.
  TrafficEnd traffic(const NetTraffic& traffic);
  /// Leaves with requests in flight, as an abort does: posts both ways, deregMr, frees the buffers (or only watches
  /// them), closes.
  void abandon(const NetTraffic& traffic, bool unmap);
  /// closeSend, closeRecv, finalize, dlclose. Safe to repeat.
  void close();

  const DeviceProps& props() const { return props_; }
  NetAbi& abi() { return *rank_.library().net(); }
  void* sendComm() const { return sendComm_; }
  void* recvComm() const { return recvComm_; }

 private:
  friend class NetTrafficRun;
  bool ok(ncclResult_t result, const char* call);
  bool checkProps();
  bool pollConnections(void* handleOfNext);

  Rank& rank_;
  bool open_ = false;
  void* ctx_ = nullptr;
  DeviceProps props_;
  void* listenComm_ = nullptr;
  void* sendComm_ = nullptr;
  void* recvComm_ = nullptr;
};

/// A number for message `index` from `source`; from it and the seed follow, on both ends, what is drawn at random ...
std::uint64_t messageKey(const NetTraffic& traffic, int source, int index) noexcept;
/// ... and its size and contents.
std::size_t messageBytes(const NetTraffic& traffic, int source, int index);
void fillMessage(const NetTraffic& traffic, int source, int index, std::span<std::byte> out);

/// The whole life of a peer as a body for run(): open, connect, traffic, close; `cycles` times, with dlclose between.
std::function<void(Rank&)> netRing(NetTraffic traffic, int cycles = 1);

}  // namespace cgx::host
