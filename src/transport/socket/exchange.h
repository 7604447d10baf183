// What the streams of one connection share: the two ledgers and the sticky error, behind one lock that is held for
// moments only. Knows frames; knows no descriptors.
#pragma once

#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <string>

#include "cgx/status.h"
#include "cgx/transport.h"
#include "transport/socket/ledger.h"

namespace cgx::transport::socket {

/// Completions to tell once every lock is released.
class Told {
 public:
  void add(Completion* completion) noexcept {
    if (completion != nullptr) list_[count_++] = completion;
  }
  /// Fewer than `more` further ones fit.
  bool lacksRoom(std::size_t more) const noexcept { return count_ + more > list_.size(); }
  bool empty() const noexcept { return count_ == 0; }
  void tell(const Status& status) noexcept {
    for (std::size_t i = 0; i < count_; ++i) list_[i]->done(list_[i], status);
    count_ = 0;
  }

 private:
  std::array<Completion*, 64> list_;
  std::size_t count_ = 0;
};

/// What the peer hears last, on every stream.
struct Farewell {
  wire::FrameType type = wire::FrameType::Bye;
  Misfit misfit;     // for TooLong
  std::string text;  // for Bye; empty: a clean end
};

class Exchange {
 public:
  explicit Exchange(std::size_t streams) : outgoing_(streams), streams_(streams) {}

  /// The sticky error, or Ok.
  Status status() const;
  bool stopped() const noexcept { return stopped_.load(std::memory_order_acquire); }  // pairs with the release in stop

  Status postSend(std::span<const std::byte> data, int tag, Priority priority, Completion& completion, Misfit& misfit);
  Status postReceive(std::span<const Slot> slots, Completion& completion);

  /// Whether stream `index` has something to write: data any, announcements only stream 0.
  bool hasWork(std::size_t index) const;
  std::optional<Chunk> nextChunk();
  std::optional<std::uint64_t> announce(std::span<wire::PostedSlot, kMaxGroup> slots, std::size_t& count);
  Completion* written(const Chunk& chunk);

  Status announced(std::uint64_t receive, std::span<const wire::PostedSlot> slots, Misfit& misfit);
  Result<std::byte*> place(const wire::Frame& frame);
  Completion* arrived(const wire::Frame& frame);
  Status tooLong(const wire::Frame& frame) const;

  /// A stream will bring nothing more. `clean`: after a Bye without text. The first reason that is not clean is kept.
  void streamEnded(Status reason, bool clean, Clock::time_point now);
  /// Set when the connection has to fail now: all streams have ended, or one did a while ago without a goodbye, and
  /// somebody is affected by it.
  std::optional<Status> verdict(Clock::time_point now) const;

  /// Makes `why` the sticky error; false when there is one already. From here on no memory of the poster is handed out.
  bool stop(const Status& why);
  /// After stop, and once no stream touches memory any more: all completions outstanding, for the caller to tell.
  template <class Add>
  void drain(Add add) {
    const std::lock_guard lock(mutex_);
    outgoing_.drain(add);
    incoming_.drain(add);
  }

 private:
  Status postable() const;

  mutable std::mutex mutex_;  // guards everything here but stopped_
  std::atomic<bool> stopped_{false};
  Status status_;
  Outgoing outgoing_;
  Incoming incoming_;
  std::size_t streams_;
  std::size_t ended_ = 0;
  Clock::time_point firstEnd_{};
  bool cleanEnd_ = true;
  Status endReason_;
};

}  // namespace cgx::transport::socket
