// The lock of exchange.h around the ledgers, and the rules by which the end of streams becomes the end of the
// connection.
#include "transport/socket/exchange.h"

#include <utility>

namespace cgx::transport::socket {
namespace {

// When one stream breaks the others may still bring data that the peer sent before it went: they get this long.
constexpr auto kOtherStreams = std::chrono::seconds(1);

}  // namespace

Status Exchange::status() const {
  if (!stopped()) return {};
  const std::lock_guard lock(mutex_);
  return status_;
}

Status Exchange::postable() const {
  if (stopped()) return status_;
  return ended_ == streams_ ? endReason_ : Status();
}

Status Exchange::postSend(std::span<const std::byte> data, int tag, Priority priority, Completion& completion,
                          Misfit& misfit) {
  const std::lock_guard lock(mutex_);
  CGX_TRY(postable());
  return outgoing_.post(data, tag, priority, completion, misfit);
}

Status Exchange::postReceive(std::span<const Slot> slots, Completion& completion) {
  const std::lock_guard lock(mutex_);
  CGX_TRY(postable());
  return incoming_.post(slots, completion);
}

bool Exchange::hasWork(std::size_t index) const {
  if (stopped()) return false;
  const std::lock_guard lock(mutex_);
  return outgoing_.hasReady() || (index == 0 && incoming_.hasUnannounced());
}

std::optional<Chunk> Exchange::nextChunk() {
  const std::lock_guard lock(mutex_);
  if (stopped()) return std::nullopt;
  return outgoing_.next();
}

std::optional<std::uint64_t> Exchange::announce(std::span<wire::PostedSlot, kMaxGroup> slots, std::size_t& count) {
  const std::lock_guard lock(mutex_);
  if (stopped()) return std::nullopt;
  return incoming_.announce(slots, count);
}

Completion* Exchange::written(const Chunk& chunk) {
  const std::lock_guard lock(mutex_);
  return outgoing_.written(chunk);
}

Status Exchange::announced(std::uint64_t receive, std::span<const wire::PostedSlot> slots, Misfit& misfit) {
  const std::lock_guard lock(mutex_);
  return outgoing_.announced(receive, slots, misfit);
}

Result<std::byte*> Exchange::place(const wire::Frame& frame) {
  const std::lock_guard lock(mutex_);
  return incoming_.place(frame);
}

Completion* Exchange::arrived(const wire::Frame& frame) {
  const std::lock_guard lock(mutex_);
  return incoming_.arrived(frame);
}

Status Exchange::tooLong(const wire::Frame& frame) const {
  const std::lock_guard lock(mutex_);
  return incoming_.tooLong(frame);
}

void Exchange::streamEnded(Status reason, bool clean, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (ended_++ == 0) firstEnd_ = now;
  if (endReason_.ok() || (cleanEnd_ && !clean)) endReason_ = std::move(reason);
  cleanEnd_ = cleanEnd_ && clean;
}

std::optional<Status> Exchange::verdict(Clock::time_point now) const {
  const std::lock_guard lock(mutex_);
  if (stopped() || ended_ == 0) return std::nullopt;
  // A goodbye is said on every stream, behind all data: on a slow link the others may come to it much later.
  if (ended_ < streams_ && (cleanEnd_ || now - firstEnd_ < kOtherStreams)) return std::nullopt;
  // A peer that said goodbye with nothing outstanding is an error only for whoever posts again.
  if (cleanEnd_ && ended_ == streams_ && outgoing_.empty() && incoming_.empty()) return std::nullopt;
  return endReason_;
}

bool Exchange::stop(const Status& why) {
  const std::lock_guard lock(mutex_);
  if (stopped()) return false;
  status_ = why;
  stopped_.store(true, std::memory_order_release);
  return true;
}

}  // namespace cgx::transport::socket
