// The owned descriptor: closed exactly once, moved without leaks, errno kept; EINTR repeated and nothing else.
#include "base/fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>

namespace cgx {
namespace {

int freshDescriptor() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }
bool isOpen(int fd) { return ::fcntl(fd, F_GETFD) != -1; }

TEST(Fd, ClosesWhenItsOwnerGoes) {
  const int raw = freshDescriptor();
  {
    const Fd fd(raw);
    EXPECT_TRUE(fd.valid());
    EXPECT_TRUE(isOpen(raw));
  }
  EXPECT_FALSE(isOpen(raw));
}

TEST(Fd, MovingHandsTheDescriptorOver) {
  Fd first(freshDescriptor());
  const int raw = first.get();
  Fd second(std::move(first));
  EXPECT_FALSE(first.valid());  // NOLINT(bugprone-use-after-move): the moved-from state is what is tested
  EXPECT_EQ(second.get(), raw);
  const int old = freshDescriptor();
  Fd third(old);
  third = std::move(second);
  EXPECT_FALSE(isOpen(old));
  EXPECT_TRUE(isOpen(raw));
}

TEST(Fd, MovingToItselfKeepsTheDescriptor) {
  Fd fd(freshDescriptor());
  Fd& same = fd;
  fd = std::move(same);
  EXPECT_TRUE(isOpen(fd.get()));
}

TEST(Fd, ReleaseLeavesTheDescriptorOpen) {
  int raw = -1;
  {
    Fd fd(freshDescriptor());
    raw = fd.release();
  }
  EXPECT_TRUE(isOpen(raw));
  ::close(raw);
}

TEST(Fd, ClosingKeepsErrno) {
  Fd fd(freshDescriptor());
  ::close(fd.get());  // the second close fails with EBADF
  errno = ECONNRESET;
  fd.reset();
  EXPECT_EQ(errno, ECONNRESET);
}

TEST(RetryEintr, RepeatsInterruptedCallsOnly) {
  int calls = 0;
  const int result = retryEintr([&] {
    errno = EINTR;
    return ++calls < 3 ? -1 : 7;
  });
  EXPECT_EQ(result, 7);
  EXPECT_EQ(calls, 3);

  calls = 0;
  EXPECT_EQ(retryEintr([&] {
              ++calls;
              errno = EAGAIN;
              return -1;
            }),
            -1);
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace cgx
