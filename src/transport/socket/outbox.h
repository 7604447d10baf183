// Frames on their way into one stream: a small batch that leaves in one call, with a cursor for partial writes.
// Knows the frame layout; knows no locks and no ledger.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <span>

#include "cgx/wire_link.h"
#include "transport/socket/exchange.h"

namespace cgx::transport::socket {

class Outbox {
 public:
  static constexpr std::size_t kFrames = 16;
  // Enough that the cost of a call does not matter; more would only let a high-priority message wait longer.
  static constexpr std::size_t kBatchBytes = 256 << 10;

  bool empty() const noexcept { return count_ == 0; }
  bool full() const noexcept { return count_ == kFrames || bytes_ >= kBatchBytes; }
  bool midFrame() const noexcept { return count_ > 0 && frames_[0].done > 0; }
  void clear() noexcept { count_ = bytes_ = 0; }

  void addPosted(std::uint64_t receive, std::span<const wire::PostedSlot> slots) noexcept;
  void addData(const Chunk& chunk, bool checksum) noexcept;
  void addHeartbeat() noexcept;
  /// `farewell` stays alive until the outbox is empty.
  void addFarewell(const Farewell& farewell) noexcept;

  std::size_t gather(std::span<iovec, 2 * kFrames> into) const noexcept;
  /// `n` bytes have left; calls `whole` for each chunk that has left entirely.
  template <class Whole>
  void advance(std::size_t n, Whole whole) noexcept {
    std::size_t gone = 0;
    while (gone < count_) {
      Item& item = frames_[gone];
      const std::size_t left = item.bytes() - item.done;
      const std::size_t step = n < left ? n : left;
      item.done += step;
      n -= step;
      bytes_ -= step;
      if (item.done < item.bytes()) break;
      if (item.isData) whole(item.chunk);
      ++gone;
    }
    for (std::size_t i = gone; i < count_; ++i) frames_[i - gone] = frames_[i];
    count_ -= gone;
  }

 private:
  struct Item {
    std::array<std::byte, sizeof(wire::Frame) + kMaxGroup * sizeof(wire::PostedSlot)> head;
    std::size_t headBytes = 0;
    std::size_t done = 0;
    std::span<const std::byte> payload;
    Chunk chunk;
    bool isData = false;
    std::size_t bytes() const noexcept { return headBytes + payload.size(); }
  };
  Item& append(wire::Frame& frame, std::span<const std::byte> inlined, std::span<const std::byte> payload) noexcept;

  std::array<Item, kFrames> frames_;
  std::size_t count_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace cgx::transport::socket
