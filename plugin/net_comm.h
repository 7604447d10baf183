// One direction of a link as NCCL's net calls see it: a pool of requests over a transport connection, sticky errors,
// late peers. Knows no ABI version.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "cgx/transport.h"
#include "plugin/boundary.h"
#include "plugin/host.h"
#include "plugin/request_pool.h"

namespace cgx::plugin {

/// Driven by one thread at a time, as NCCL does; only completions arrive from others.
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

 private:
  enum class State : std::uint8_t { Posted, Done, Failed };
  struct Request : PooledRequest, transport::Completion {
    NetComm* comm = nullptr;
    std::atomic<State> state{State::Done};
    int messages = 0;
    std::size_t bytes = 0;  // posted, for log lines
    transport::Clock::time_point posted;
  };

  Answer post(Request& request, const Status& posted, void** out);
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
};

}  // namespace cgx::plugin
