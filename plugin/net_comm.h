// One direction of a link as NCCL's net calls see it: a pool of requests over a transport connection, sticky errors,
// late peers. Knows no ABI version.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "cgx/transport.h"
#include "plugin/boundary.h"
#include "plugin/host.h"
#include "plugin/request_pool.h"

namespace cgx::plugin {

/// Driven by one thread at a time, as NCCL does; completions arrive from others, and memory is registered and
/// deregistered by another.
class NetComm {
 public:
  enum class Side : std::uint8_t { Send, Recv };

  NetComm(Host& host, Side side, std::unique_ptr<transport::Connection> link);
  /// Stops all access to posted memory and frees every request; never waits for the peer.
  ~NetComm();
  NetComm(const NetComm&) = delete;
  NetComm& operator=(const NetComm&) = delete;

  Side side() const noexcept { return side_; }

  /// Ok with *request == nullptr: no room now, ask again.
  Answer send(std::span<const std::byte> data, int tag, void** request);
  Answer receive(std::span<const transport::Slot> slots, void** request);
  /// *done = 1 ends the request; `sizes`, when there, gets one entry a message, cut at INT_MAX as the ABI has no more
  /// room.
  static Answer test(void* request, int* done, int* sizes);

  /// A handle, never NULL, that is good until deregisterMemory(). Host memory needs no work; touches nothing.
  void* registerMemory(std::span<const std::byte> memory);
  /// NCCL frees the memory next, at an abort with requests in flight: when this returns none of them touches it. If
  /// there were any, and no other registration covers them, the communicator has failed. False: not our handle.
  bool deregisterMemory(void* handle);

 private:
  enum class State : std::uint8_t { Posted, Done, Failed };
  struct Request : PooledRequest, transport::Completion {
    NetComm* comm = nullptr;
    std::atomic<State> state{State::Done};
    int messages = 0;
    std::size_t bytes = 0;                                                  // posted, for log lines
    std::array<std::span<const std::byte>, transport::kMaxGroup> memory{};  // under memoryMutex_; `messages` of them
    transport::Clock::time_point posted;
  };

  void prepare(Request& request, std::span<const std::span<const std::byte>> memory);
  Answer post(Request& request, const Status& posted, void** out);
  void closeLink(const Status& why) noexcept;
  bool losesMemory(const Request& request, std::span<const std::byte> gone) const;
  static void onDone(transport::Completion* completion, const Status& status) noexcept;
  void noteFailure(const Status& status) noexcept;
  Answer failure();
  Answer wait(Request& request);
  std::string waiting(transport::Clock::time_point now) const;

  Live live_;
  Host& host_;
  const Side side_;
  const std::unique_ptr<transport::Connection> link_;
  RequestPool<Request> requests_;
  bool reported_ = false;  // the sticky error has had its line
  transport::Clock::time_point lateReported_{};

  std::mutex mutex_;
  Status failure_;  // under mutex_; the first, and sticky

  std::mutex closing_;  // of the link: two threads may want it

  std::mutex memoryMutex_;
  std::map<std::uintptr_t, std::span<const std::byte>> regions_;  // under memoryMutex_; by handle
  std::uintptr_t lastRegion_ = 0;                                 // under memoryMutex_
};

}  // namespace cgx::plugin
