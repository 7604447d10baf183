// A fixed pool of requests and the void* by which NCCL holds them: the address plus a generation in its low bits, so
// that a request that was reported done is noticed when it comes back. Knows nothing of what a request is for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace cgx::plugin {

/// What a request derives from. The alignment makes room for the generation.
struct alignas(64) PooledRequest {
  bool taken = false;
  std::uint8_t generation = 0;
};
inline constexpr std::uintptr_t kGenerations = alignof(PooledRequest);

/// Allocates when made, never later. For one thread at a time.
template <class Request>
class RequestPool {
 public:
  explicit RequestPool(std::size_t capacity)
      : capacity_(capacity),
        requests_(std::make_unique<Request[]>(capacity)),
        free_(std::make_unique<std::uint16_t[]>(capacity)),
        freeCount_(capacity) {
    for (std::size_t i = 0; i < capacity; ++i) free_[capacity - 1 - i] = static_cast<std::uint16_t>(i);
  }

  Request* begin() const noexcept { return requests_.get(); }
  Request* end() const noexcept { return requests_.get() + capacity_; }

  /// nullptr: all are taken.
  Request* take() noexcept {
    if (freeCount_ == 0) return nullptr;
    Request& request = requests_[free_[--freeCount_]];
    request.taken = true;
    return &request;
  }
  void give(Request& request) noexcept {
    request.taken = false;
    request.generation = static_cast<std::uint8_t>((request.generation + 1) % kGenerations);
    free_[freeCount_++] = static_cast<std::uint16_t>(&request - requests_.get());
  }

  static void* token(const Request& request) noexcept {
    return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(&request) + request.generation);
  }
  /// nullptr: no request, or one that was given back. The pool it came from must still exist.
  static Request* find(void* token) noexcept {
    const auto word = reinterpret_cast<std::uintptr_t>(token);
    if (word < kGenerations) return nullptr;
    auto* request = reinterpret_cast<Request*>(word - word % kGenerations);
    return request->taken && request->generation == word % kGenerations ? request : nullptr;
  }

 private:
  std::size_t capacity_;
  std::unique_ptr<Request[]> requests_;
  std::unique_ptr<std::uint16_t[]> free_;  // indices; the first freeCount_ are free
  std::size_t freeCount_;
};

}  // namespace cgx::plugin
