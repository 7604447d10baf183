// Memory that notices misuse: guard pages and canaries around buffers, and regions that may not be touched any more.
// Knows the board (whose fault handler names the violation) and nothing of plugins.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "support/nccl_host/board.h"

namespace cgx::host {

/// `bytes` of memory between guard pages, at a page's end unless `atStart`; what is left of the page is filled with a
/// canary.
class GuardedBuffer {
 public:
  GuardedBuffer() = default;
  GuardedBuffer(Board* board, int rank, std::size_t bytes, bool atStart = false);
  ~GuardedBuffer();
  GuardedBuffer(GuardedBuffer&& other) noexcept { *this = std::move(other); }
  GuardedBuffer& operator=(GuardedBuffer&& other) noexcept;

  bool valid() const { return base_ != nullptr; }
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::span<std::byte> span() const { return {data_, size_}; }

  /// Writing makes the process end as WritesUserSendBuffer until it is made writable again.
  void setReadOnly(bool readOnly);
  /// Unmapped for good; touching it is `violation`. The addresses stay reserved, so nothing else can come to lie there.
  void retire(Violation violation, const char* what);
  /// False when a byte of the canary has changed.
  bool canaryIntact() const;

 private:
  Board* board_ = nullptr;
  int rank_ = -1;
  std::byte* base_ = nullptr;  // first guard page
  std::size_t mapped_ = 0;     // guards included
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  int watchBefore_ = -1;
  int watchAfter_ = -1;
  int watchBody_ = -1;
};

}  // namespace cgx::host
