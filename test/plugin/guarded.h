// Memory that ends at a page nobody may touch: one byte too many is a crash, not a lucky pass.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>

namespace cgx::test {

class Guarded {
 public:
  explicit Guarded(std::size_t bytes) : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {
    room_ = (bytes + page_ - 1) / page_ * page_;
    base_ = static_cast<std::byte*>(
        mmap(nullptr, room_ + page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(base_ + room_, page_, PROT_NONE);
    data_ = base_ + room_ - bytes;
  }
  ~Guarded() { munmap(base_, room_ + page_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  std::byte* data() const { return data_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::size_t page_;
  std::size_t room_ = 0;
  std::byte* base_ = nullptr;
  std::byte* data_ = nullptr;
};

}  // namespace cgx::test
