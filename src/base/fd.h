// An owned file descriptor, and system calls that a signal may interrupt. Knows nothing of what the descriptor is.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <utility>

namespace cgx {

/// Owns a descriptor; closed when the owner goes. -1 is "none". Closing cannot report an error, so whoever writes files
/// checks fsync first.
class Fd {
 public:
  Fd() noexcept = default;
  explicit Fd(int fd) noexcept : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }

  int get() const noexcept { return fd_; }
  bool valid() const noexcept { return fd_ >= 0; }
  /// The caller owns it from here on.
  int release() noexcept { return std::exchange(fd_, -1); }
  /// Leaves errno alone, so that an error path may drop descriptors before it reports. Never retried: Linux has freed
  /// the number even when close() says EINTR, and a second close could hit another thread's new descriptor.
  void reset(int fd = -1) noexcept {
    const int old = std::exchange(fd_, fd);
    if (old < 0) return;
    const int saved = errno;
    ::close(old);
    errno = saved;
  }

 private:
  int fd_ = -1;
};

/// Repeats a call that returns -1 with EINTR: retryEintr([&] { return ::recv(fd, data, size, flags); }).
template <class Call>
auto retryEintr(Call&& call) noexcept(noexcept(call())) {
  for (;;) {
    const auto result = call();
    if (result != -1 || errno != EINTR) return result;
  }
}

}  // namespace cgx
