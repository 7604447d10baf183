// One direction of a link as NCCL's net calls see it: a pool of requests over a transport connection, sticky errors,
// late peers. Knows no ABI version.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "cgx/transport.h"
#include "plugin/boundary.h"
#include "plugin/host.h"

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
  enum class State : std::uint8_t { Free, Posted, Done, Failed };

  // The void* that NCCL holds is the address plus a generation in the low bits, so that a stale request is noticed.
  struct alignas(64) Request : transport::Completion {
    NetComm* comm = nullptr;
    std::atomic<State> state{State::Free};
    std::uint8_t generation = 0;
    int messages = 0;
    std::size_t bytes = 0;  // posted, for log lines
    transport::Clock::time_point posted;
  };
  static constexpr std::uintptr_t kGenerations = 64;

  Request* take();
  void give(Request& request) noexcept;
  static void* token(const Request& request) noexcept;
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
  const std::size_t capacity_;
  const std::unique_ptr<Request[]> requests_;
  const std::unique_ptr<std::uint16_t[]> free_;  // indices; the first freeCount_ are free
  std::size_t freeCount_ = 0;
  bool reported_ = false;  // the sticky error has had its line
  transport::Clock::time_point lateReported_{};

  std::mutex mutex_;
  Status failure_;  // under mutex_; the first, and sticky
};

}  // namespace cgx::plugin
