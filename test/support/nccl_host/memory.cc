// See memory.h. Only mmap and mprotect here.
#include "support/nccl_host/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace cgx::host {
namespace {

constexpr std::byte kCanary{0xC7};

std::size_t pageBytes() noexcept { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

GuardedBuffer::GuardedBuffer(Board* board, int rank, std::size_t bytes, bool atStart)
    : board_(board), rank_(rank), size_(bytes) {
  const std::size_t page = pageBytes();
  const std::size_t body = std::max(page, (bytes + page - 1) / page * page);
  mapped_ = body + 2 * page;
  void* memory = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  base_ = static_cast<std::byte*>(memory);
  data_ = base_ + page + (atStart ? 0 : body - bytes);
  if (body < (std::size_t{64} << 20) || body != bytes) {
    std::fill(base_ + page, data_, kCanary);
    std::fill(data_ + bytes, base_ + page + body, kCanary);
  }
  mprotect(base_, page, PROT_NONE);
  mprotect(base_ + page + body, page, PROT_NONE);
  watchBefore_ = board_->watch({base_, page}, Violation::WritesOutsideBuffer, rank_, "the page before a buffer");
  watchAfter_ =
      board_->watch({base_ + page + body, page}, Violation::WritesOutsideBuffer, rank_, "the page after a buffer");
}

GuardedBuffer::~GuardedBuffer() {
  if (!base_) return;
  board_->unwatch(watchBefore_);
  board_->unwatch(watchAfter_);
  board_->unwatch(watchBody_);
  munmap(base_, mapped_);
}

GuardedBuffer& GuardedBuffer::operator=(GuardedBuffer&& other) noexcept {
  std::swap(board_, other.board_);
  std::swap(rank_, other.rank_);
  std::swap(base_, other.base_);
  std::swap(mapped_, other.mapped_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(watchBefore_, other.watchBefore_);
  std::swap(watchAfter_, other.watchAfter_);
  std::swap(watchBody_, other.watchBody_);
  return *this;
}

void GuardedBuffer::setReadOnly(bool readOnly) {
  const std::size_t page = pageBytes();
  const std::span<std::byte> body{base_ + page, mapped_ - 2 * page};
  mprotect(body.data(), body.size(), readOnly ? PROT_READ : PROT_READ | PROT_WRITE);
  board_->unwatch(watchBody_);
  watchBody_ = readOnly ? board_->watch(body, Violation::WritesUserSendBuffer, rank_, "a send buffer of the user") : -1;
}

void GuardedBuffer::retire(Violation violation, const char* what) {
  const std::size_t page = pageBytes();
  const std::span<std::byte> body{base_ + page, mapped_ - 2 * page};
  // Watched first: a thread of the plugin may already be on its way here.
  board_->unwatch(watchBody_);
  watchBody_ = board_->watch(body, violation, rank_, what);
  // A new mapping over the old one gives the pages back, as munmap would, and keeps the addresses ours.
  mmap(body.data(), body.size(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
}

bool GuardedBuffer::canaryIntact() const {
  const std::size_t page = pageBytes();
  const auto intact = [](const std::byte& b) { return b == kCanary; };
  return std::all_of(base_ + page, data_, intact) && std::all_of(data_ + size_, base_ + mapped_ - page, intact);
}

}  // namespace cgx::host
