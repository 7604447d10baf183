// The contract of transport.h, part 5: signals. A storm of real ones while connections are made and used, and every
// kind of call that a signal can interrupt answering EINTR again and again.
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "contract/transport_fixture.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CGX_OWN_CALLS 1
#else
#define CGX_OWN_CALLS 0  // the sanitizers have their own
#endif

namespace {

thread_local bool expectsSignals = false;
std::atomic<int> interrupts{0};
std::atomic<int> strays{0};  // handlers run on a thread that is not the test's

void onAlarm(int) { ++(expectsSignals ? interrupts : strays); }

std::atomic<bool> interrupting{false};
std::atomic<int> interrupted{0};

#if CGX_OWN_CALLS
/// Two of three calls, so that a single repetition is not enough.
bool interruptNow() {
  static std::atomic<unsigned> calls{0};
  if (!interrupting.load() || calls.fetch_add(1) % 3 == 2) return false;
  ++interrupted;
  errno = EINTR;
  return true;
}

template <class... Arguments>
long callUnlessInterrupted(long number, Arguments... arguments) {
  return interruptNow() ? -1 : ::syscall(number, arguments...);
}
#endif

}  // namespace

#if CGX_OWN_CALLS
// In place of the C library's.
extern "C" {
ssize_t recv(int fd, void* into, size_t bytes, int flags) {
  return callUnlessInterrupted(SYS_recvfrom, fd, into, bytes, flags, nullptr, nullptr);
}
ssize_t send(int fd, const void* from, size_t bytes, int flags) {
  return callUnlessInterrupted(SYS_sendto, fd, from, bytes, flags, nullptr, 0);
}
ssize_t recvmsg(int fd, msghdr* message, int flags) { return callUnlessInterrupted(SYS_recvmsg, fd, message, flags); }
ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  return callUnlessInterrupted(SYS_sendmsg, fd, message, flags);
}
int accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
  return static_cast<int>(callUnlessInterrupted(SYS_accept4, fd, address, length, flags));
}
int poll(pollfd* fds, nfds_t count, int timeoutMs) {
  const timespec limit{timeoutMs / 1000, timeoutMs % 1000 * 1000000L};
  return static_cast<int>(callUnlessInterrupted(SYS_ppoll, fds, count, timeoutMs < 0 ? nullptr : &limit, nullptr, 0));
}
int epoll_wait(int fd, epoll_event* events, int count, int timeoutMs) {
  return static_cast<int>(callUnlessInterrupted(SYS_epoll_pwait, fd, events, count, timeoutMs, nullptr, 0));
}
/// The one that goes on although it was interrupted.
int connect(int fd, const sockaddr* address, socklen_t length) {
  const long result = ::syscall(SYS_connect, fd, address, length);
  if (result != 0 && errno == EINPROGRESS && interruptNow()) return -1;
  return static_cast<int>(result);
}
}
#endif

namespace cgx::transport {
namespace {

class TransportInterrupts : public TransportContract {
 protected:
  void TearDown() override { interrupting = false; }

  /// `rounds` messages of `bytes` from one end to the other, one after another, each compared.
  static bool stream(Connection& from, Connection& to, int tag, int rounds, std::size_t bytes) {
    const std::vector<std::byte> data = pattern(bytes + 64, static_cast<std::uint64_t>(tag));
    std::vector<std::byte> room(bytes);
    for (int i = 0; i < rounds; ++i) {
      const auto sent = std::span(data).subspan(static_cast<std::size_t>(i % 64), bytes);
      Waiter got, gone;
      if (!post(to, room, got, tag).ok() || !from.send(sent, tag, Priority::Normal, gone).ok()) return false;
      if (!got.wait() || !gone.wait() || !got.status().ok() || !gone.status().ok() || got.sizes[0] != bytes)
        return false;
      if (std::memcmp(room.data(), sent.data(), bytes) != 0) return false;
    }
    return true;
  }
};

TEST_P(TransportInterrupts, AStormOfThemDisturbsNothingAndStaysOffTheLibrarysThreads) {
  interrupts = strays = 0;
  expectsSignals = true;
  struct sigaction storm {};
  struct sigaction before {};
  storm.sa_handler = onAlarm;  // without SA_RESTART
  ASSERT_EQ(::sigaction(SIGALRM, &storm, &before), 0);
  const itimerval everyMillisecond{{0, 1000}, {0, 1000}};
  ASSERT_EQ(::setitimer(ITIMER_REAL, &everyMillisecond, nullptr), 0);

  for (int i = 0; i < 40 && !HasFailure(); ++i) {
    build(settings_);
    connect();
    EXPECT_TRUE(stream(*a_, *b_, 0, 1, 1000)) << i;
  }
  std::array<bool, 4> right{};
  std::atomic<int> running{4};
  std::vector<std::thread> posters;
  sigset_t alarm;
  sigemptyset(&alarm);
  sigaddset(&alarm, SIGALRM);
  ::pthread_sigmask(SIG_BLOCK, &alarm, nullptr);  // until they have said that they expect it
  for (std::size_t i = 0; i < right.size(); ++i) {
    posters.emplace_back([&, i] {
      expectsSignals = true;
      ::pthread_sigmask(SIG_UNBLOCK, &alarm, nullptr);
      Connection& from = i % 2 == 0 ? *a_ : *b_;
      Connection& to = i % 2 == 0 ? *b_ : *a_;
      right[i] = stream(from, to, static_cast<int>(i), i < 2 ? 32 : 1000, i < 2 ? 4 << 20 : 100);
      --running;
      while (running >= 0) std::this_thread::sleep_for(milliseconds(1));
    });
  }
  ::pthread_sigmask(SIG_UNBLOCK, &alarm, nullptr);
  while (running > 0) {
    for (std::thread& poster : posters) ::pthread_kill(poster.native_handle(), SIGALRM);
    std::this_thread::sleep_for(milliseconds(1));
  }
  running = -1;
  for (std::thread& poster : posters) poster.join();
  for (const bool one : right) EXPECT_TRUE(one);
  // Nobody of ours takes one now: a thread of the library would have to.
  ::pthread_sigmask(SIG_BLOCK, &alarm, nullptr);
  std::this_thread::sleep_for(milliseconds(20));
  ::pthread_sigmask(SIG_UNBLOCK, &alarm, nullptr);
  const auto begin = Clock::now();
  a_.reset(), b_.reset();
  EXPECT_LT(Clock::now() - begin, seconds(6));

  const itimerval never{};
  ::setitimer(ITIMER_REAL, &never, nullptr);
  ::sigaction(SIGALRM, &before, nullptr);
  EXPECT_GT(interrupts, 200);
  EXPECT_EQ(strays, 0);
}

TEST_P(TransportInterrupts, OfEveryCallAgainAndAgainAreRepeated) {
  if (!CGX_OWN_CALLS) GTEST_SKIP() << "the sanitizer answers these calls itself";
  interrupted = 0;
  interrupting = true;
  for (int i = 0; i < 20 && !HasFailure(); ++i) {
    build(settings_);
    connect();
    EXPECT_TRUE(stream(*a_, *b_, 0, 20, 100)) << i;
    EXPECT_TRUE(stream(*b_, *a_, 1, 4, 3 << 20)) << i;
    // What was sent before a close arrives.
    const std::vector<std::byte> data = pattern(1 << 20, 5);
    std::vector<std::byte> room(data.size());
    Waiter got, gone;
    ASSERT_TRUE(post(*b_, room, got).ok());
    ASSERT_TRUE(a_->send(data, 0, Priority::Normal, gone).ok());
    ASSERT_TRUE(gone.wait());
    a_->close({});
    ASSERT_TRUE(got.wait());
    EXPECT_TRUE(got.status().ok()) << got.status().text();
    EXPECT_EQ(room, data);
  }
  interrupting = false;
  EXPECT_GT(interrupted, 1000);
}

INSTANTIATE_TEST_SUITE_P(Transports, TransportInterrupts, ::testing::Values(loopbackSocket(1, 1), loopbackSocket(4, 2)),
                         nameOf);

}  // namespace
}  // namespace cgx::transport
