// Matching is first in, first out for each tag; see the contract in transport.h.
#include "transport/socket/ledger.h"

#include <algorithm>
#include <string>

namespace cgx::transport::socket {
namespace {

// A message up to this size is one frame on one stream: cutting it further costs more calls than it gains in parallel
// copies.
constexpr std::size_t kWholeBytes = 128 << 10;
constexpr std::size_t kAlign = 64 << 10;

std::size_t chunkBytesFor(std::size_t total, std::size_t streams) {
  if (streams == 1 || total <= kWholeBytes) return wire::kMaxChunkBytes;
  const std::size_t share = (total + streams - 1) / streams;
  return std::clamp((share + kAlign - 1) / kAlign * kAlign, kAlign, wire::kMaxChunkBytes);
}

Status tooLongStatus(std::uint64_t total, std::uint64_t capacity) {
  return Status::invalid("a message of " + std::to_string(total) + " bytes was sent to a receive of " +
                         std::to_string(capacity) + " bytes");
}

}  // namespace

Outgoing::Outgoing(std::size_t streams) noexcept : streams_(streams) {
  for (std::size_t i = 0; i < sends_.size(); ++i) {
    sends_[i].next = i + 1 < sends_.size() ? static_cast<std::uint16_t>(i + 1) : kNone;
  }
}

void Outgoing::push(Queue& queue, std::uint16_t index) noexcept {
  sends_[index].next = kNone;
  (queue.tail != kNone ? sends_[queue.tail].next : queue.head) = index;
  queue.tail = index;
}

void Outgoing::pop(Queue& queue) noexcept {
  queue.head = sends_[queue.head].next;
  if (queue.head == kNone) queue.tail = kNone;
}

Status Outgoing::post(std::span<const std::byte> data, int tag, Priority priority, Completion& completion,
                      Misfit& misfit) {
  if (freeHead_ == kNone) return Status::pending();
  const std::uint16_t index = freeHead_;
  Send& send = sends_[index];
  freeHead_ = send.next;
  ++outstanding_;
  send = {&completion, data, tag, priority, 0, 0, chunkBytesFor(data.size(), streams_), 0, data.size(), kNone};
  // If an older send with this tag waited, no announced receive could have a free slot for it: order holds without
  // looking at it.
  for (std::size_t i = 0; i < announcedCount_; ++i) {
    Status error;
    if (!match(announced_[byAge_[i]], index, misfit, error)) continue;
    if (!error.ok()) send.completion = nullptr;  // the caller learns it from the return value
    return error;
  }
  push(waiting_, index);
  return {};
}

bool Outgoing::match(Announced& to, std::uint16_t index, Misfit& misfit, Status& error) {
  Send& send = sends_[index];
  for (std::uint8_t slot = 0; slot < to.count; ++slot) {
    if (to.taken[slot] || to.tag[slot] != send.tag) continue;
    to.taken[slot] = true;
    if (--to.free == 0) {
      const auto end = byAge_.begin() + static_cast<std::ptrdiff_t>(announcedCount_--);
      const auto at = std::find(byAge_.begin(), end, static_cast<std::uint8_t>(&to - announced_.data()));
      std::copy(at + 1, end, at);
    }
    send.receive = to.receive;
    send.slot = slot;
    if (send.data.size() > to.capacity[slot]) {
      misfit = {to.receive, slot, send.data.size()};
      error = tooLongStatus(send.data.size(), to.capacity[slot]);
    } else {
      push(queues_[send.priority == Priority::High ? 0 : 1], index);
    }
    return true;
  }
  return false;
}

Status Outgoing::announced(std::uint64_t receive, std::span<const wire::PostedSlot> slots, Misfit& misfit) {
  if (receive != nextReceive_) {
    return Status::remote("the peer announced receive " + std::to_string(receive) + ", expected " +
                          std::to_string(nextReceive_));
  }
  if (announcedCount_ == announced_.size()) {
    return Status::remote("the peer announced more than " + std::to_string(kMaxReceives) + " receives");
  }
  if (slots.empty() || slots.size() > kMaxGroup) {
    return Status::remote("the peer announced a receive of " + std::to_string(slots.size()) + " messages, at most " +
                          std::to_string(kMaxGroup));
  }
  const auto unused =
      std::find_if(announced_.begin(), announced_.end(), [](const Announced& a) { return a.free == 0; });
  Announced& to = *unused;
  to = {};
  to.count = to.free = static_cast<std::uint8_t>(slots.size());
  to.receive = receive;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    to.tag[i] = slots[i].tag;
    to.capacity[i] = slots[i].capacity;
  }
  byAge_[announcedCount_++] = static_cast<std::uint8_t>(unused - announced_.begin());
  ++nextReceive_;
  Status error;
  Queue before = std::exchange(waiting_, Queue{});
  while (before.head != kNone) {
    const std::uint16_t index = before.head;
    pop(before);
    if (error.ok() && to.free > 0 && match(to, index, misfit, error)) continue;
    push(waiting_, index);
  }
  return error;
}

std::optional<Chunk> Outgoing::next() noexcept {
  Queue& queue = queues_[queues_[0].head != kNone ? 0 : 1];
  if (queue.head == kNone) return std::nullopt;
  Send& send = sends_[queue.head];
  const std::size_t bytes = std::min(send.chunkBytes, send.data.size() - send.taken);
  const Chunk chunk{queue.head, send.slot,        send.receive,
                    send.taken, send.data.size(), send.data.subspan(send.taken, bytes)};
  send.taken += bytes;
  if (send.taken == send.data.size()) pop(queue);
  return chunk;
}

Completion* Outgoing::written(const Chunk& chunk) noexcept {
  Send& send = sends_[chunk.send];
  send.left -= chunk.bytes.size();
  if (send.left > 0 || send.completion == nullptr) return nullptr;
  send.completion->sizes[0] = send.data.size();
  send.next = freeHead_;
  freeHead_ = chunk.send;
  --outstanding_;
  return std::exchange(send.completion, nullptr);
}

Status Incoming::post(std::span<const Slot> slots, Completion& completion) {
  if (slots.empty() || slots.size() > kMaxGroup) {
    return Status::invalid("a receive takes 1 to " + std::to_string(kMaxGroup) + " messages, not " +
                           std::to_string(slots.size()));
  }
  if (outstanding_ == receives_.size()) return Status::pending();
  // Receives may end out of order, so the place that the number suggests can be taken.
  std::size_t index = end_ % kMaxReceives;
  while (receives_[index].completion != nullptr) index = (index + 1) % kMaxReceives;
  Receive& receive = receives_[index];
  receive.completion = &completion;
  receive.number = end_++;
  receive.count = receive.missing = slots.size();
  for (std::size_t i = 0; i < slots.size(); ++i) {
    receive.parts[i] = {};
    receive.parts[i].slot = slots[i];
  }
  ++outstanding_;
  return {};
}

std::optional<std::uint64_t> Incoming::announce(std::span<wire::PostedSlot, kMaxGroup> slots,
                                                std::size_t& count) noexcept {
  if (!hasUnannounced()) return std::nullopt;
  const Receive* const receive = lookUp(announcedEnd_);
  if (receive == nullptr) return std::nullopt;  // drained: nobody needs it
  count = receive->count;
  for (std::size_t i = 0; i < count; ++i) {
    const Slot& slot = receive->parts[i].slot;
    slots[i] = {slot.tag, 0, slot.data.size()};
  }
  return announcedEnd_++;
}

const Incoming::Receive* Incoming::lookUp(std::uint64_t number) const noexcept {
  for (std::size_t i = 0; i < receives_.size(); ++i) {
    const Receive& receive = receives_[(number + i) % kMaxReceives];  // nearly always the first
    if (receive.completion != nullptr && receive.number == number) return &receive;
  }
  return nullptr;
}

Incoming::Receive* Incoming::find(std::uint64_t number, std::size_t slot) noexcept {
  if (number >= announcedEnd_) return nullptr;
  const Receive* const receive = lookUp(number);
  return receive != nullptr && slot < receive->count ? const_cast<Receive*>(receive) : nullptr;
}

Result<std::byte*> Incoming::place(const wire::Frame& frame) {
  const auto refuse = [&](const char* why) {
    return Status::remote(std::string("the peer sent data ") + why + ": receive " + std::to_string(frame.receive) +
                          " slot " + std::to_string(frame.slot) + ", bytes " + std::to_string(frame.offset) + "+" +
                          std::to_string(frame.length) + " of " + std::to_string(frame.total));
  };
  Receive* const receive = find(frame.receive, frame.slot);
  if (receive == nullptr) return refuse("for a receive that was not posted");
  Part& part = receive->parts[frame.slot];
  if (part.whole || (part.known && part.total != frame.total)) return refuse("that contradicts an earlier frame");
  if (frame.total > part.slot.data.size()) return tooLongStatus(frame.total, part.slot.data.size());
  if (frame.offset > frame.total || frame.length > frame.total - frame.offset)
    return refuse("beyond the message's end");
  if (frame.length > frame.total - part.reserved) return refuse("twice");
  if (frame.length == 0 && frame.total != 0) return refuse("of no length");
  part.known = true;
  part.total = frame.total;
  part.reserved += frame.length;
  return part.slot.data.data() + frame.offset;
}

Completion* Incoming::arrived(const wire::Frame& frame) noexcept {
  Receive* const receive = find(frame.receive, frame.slot);
  if (receive == nullptr) return nullptr;  // drained meanwhile
  Part& part = receive->parts[frame.slot];
  part.arrived += frame.length;
  if (part.whole || part.arrived < part.total) return nullptr;
  part.whole = true;
  receive->completion->sizes[frame.slot] = part.total;
  if (--receive->missing > 0) return nullptr;
  --outstanding_;
  return std::exchange(receive->completion, nullptr);
}

Status Incoming::tooLong(const wire::Frame& frame) const {
  const Receive* const receive = lookUp(frame.receive);
  if (receive == nullptr || frame.slot >= receive->count) {
    return Status::remote("the peer reported a long message for a receive that was not posted");
  }
  return tooLongStatus(frame.total, receive->parts[frame.slot].slot.data.size());
}

}  // namespace cgx::transport::socket
