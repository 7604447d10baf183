// Who owes what on one connection: sends and receives outstanding, what the peer has announced, which bytes go next.
// Pure bookkeeping: no locks (the connection has one), no I/O, no allocation after construction.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "cgx/status.h"
#include "cgx/transport.h"
#include "cgx/wire_link.h"

namespace cgx::transport::socket {

/// A part of a message on its way out.
struct Chunk {
  std::uint16_t send = 0;  // index in the table
  std::uint8_t slot = 0;
  std::uint64_t receive = 0;
  std::uint64_t offset = 0;
  std::uint64_t total = 0;
  std::span<const std::byte> bytes;
};

/// A message that does not fit the slot it belongs to.
struct Misfit {
  std::uint64_t receive = 0;
  std::uint8_t slot = 0;
  std::uint64_t total = 0;
};

/// The sending half. A send waits until the peer has announced a receive with a free slot of its tag, so nothing that
/// is on the link ever lacks memory at the other end.
class Outgoing {
 public:
  explicit Outgoing(std::size_t streams) noexcept;
  /// Pending: kMaxSends outstanding. Invalid: too long for the slot it belongs to; `misfit` says which.
  Status post(std::span<const std::byte> data, int tag, Priority priority, Completion& completion, Misfit& misfit);
  /// The peer posted receive number `receive`. Remote: it broke the protocol. Invalid: as for post.
  Status announced(std::uint64_t receive, std::span<const wire::PostedSlot> slots, Misfit& misfit);

  bool hasReady() const noexcept { return queues_[0].head != kNone || queues_[1].head != kNone; }
  /// The next chunk to write, higher priority first; the caller owes written() for it.
  std::optional<Chunk> next() noexcept;
  /// The kernel has the chunk. The completion to tell when that was the last of its message, else nullptr.
  Completion* written(const Chunk& chunk) noexcept;

  bool empty() const noexcept { return outstanding_ == 0; }
  std::size_t outstanding() const noexcept { return outstanding_; }
  /// Forgets everything; calls `told` for each completion outstanding.
  template <class Told>
  void drain(Told told);

 private:
  static constexpr std::uint16_t kNone = 0xffff;
  struct Send {
    Completion* completion = nullptr;
    std::span<const std::byte> data;
    int tag = 0;
    Priority priority = Priority::Normal;
    std::uint8_t slot = 0;
    std::uint64_t receive = 0;
    std::size_t chunkBytes = 0;
    std::size_t taken = 0;  // handed out by next()
    std::size_t left = 0;   // not yet written
    std::uint16_t next = kNone;
  };
  struct Queue {
    std::uint16_t head = kNone;
    std::uint16_t tail = kNone;
  };
  struct Announced {
    std::uint8_t count = 0;
    std::uint8_t free = 0;  // slots that no send has taken; 0: the entry is unused
    std::uint64_t receive = 0;
    std::array<std::uint64_t, kMaxGroup> capacity{};
    std::array<int, kMaxGroup> tag{};
    std::array<bool, kMaxGroup> taken{};
  };
  void push(Queue& queue, std::uint16_t index) noexcept;
  void pop(Queue& queue) noexcept;
  /// True: the send took a slot of `to`; `error` is set when it does not fit there.
  bool match(Announced& to, std::uint16_t index, Misfit& misfit, Status& error);

  std::size_t streams_;
  std::array<Send, kMaxSends> sends_;
  std::uint16_t freeHead_ = 0;
  std::size_t outstanding_ = 0;
  Queue waiting_;                // for a receive, in the order of posts
  std::array<Queue, 2> queues_;  // matched, with bytes not taken: High, Normal
  std::array<Announced, kMaxReceives> announced_;
  std::array<std::uint8_t, kMaxReceives> byAge_{};  // indices of those in use, oldest first
  std::size_t announcedCount_ = 0;
  std::uint64_t nextReceive_ = 0;  // number of the next announcement
};

/// The receiving half.
class Incoming {
 public:
  /// Pending: kMaxReceives outstanding. Invalid: no slots or too many.
  Status post(std::span<const Slot> slots, Completion& completion);
  /// The next receive that the peer must be told of: number and slots; nullopt when it knows all.
  std::optional<std::uint64_t> announce(std::span<wire::PostedSlot, kMaxGroup> slots, std::size_t& count) noexcept;
  bool hasUnannounced() const noexcept { return announcedEnd_ < end_; }

  /// Where the payload of a data frame belongs, reserved until arrived(). Remote: it fits nothing that was posted.
  Result<std::byte*> place(const wire::Frame& frame);
  /// The payload is in place. The completion to tell when that was the last byte of the whole receive, else nullptr.
  Completion* arrived(const wire::Frame& frame) noexcept;
  /// The peer said that a message is too long for its slot: Invalid with both sizes, or Remote if it makes no sense.
  Status tooLong(const wire::Frame& frame) const;

  bool empty() const noexcept { return outstanding_ == 0; }
  std::size_t outstanding() const noexcept { return outstanding_; }
  template <class Told>
  void drain(Told told);

 private:
  struct Part {
    Slot slot;
    bool known = false;  // a frame has said how long the message is
    bool whole = false;
    std::uint64_t total = 0;
    std::uint64_t reserved = 0;  // bytes of frames seen
    std::uint64_t arrived = 0;
  };
  struct Receive {
    Completion* completion = nullptr;  // nullptr: free
    std::uint64_t number = 0;
    std::size_t count = 0;
    std::size_t missing = 0;  // parts not whole
    std::array<Part, kMaxGroup> parts{};
  };
  const Receive* lookUp(std::uint64_t number) const noexcept;
  Receive* find(std::uint64_t number, std::size_t slot) noexcept;

  std::array<Receive, kMaxReceives> receives_;
  std::size_t outstanding_ = 0;
  std::uint64_t announcedEnd_ = 0;  // receives before this one were announced
  std::uint64_t end_ = 0;           // number of the next receive
};

template <class Told>
void Outgoing::drain(Told told) {
  for (Send& send : sends_) {
    if (send.completion != nullptr) told(send.completion);
    send.completion = nullptr;
  }
  outstanding_ = 0;
  waiting_ = {};
  queues_ = {};
}

template <class Told>
void Incoming::drain(Told told) {
  for (Receive& receive : receives_) {
    if (receive.completion != nullptr) told(receive.completion);
    receive.completion = nullptr;
  }
  outstanding_ = 0;
}

}  // namespace cgx::transport::socket
