// The set of loops that the process shares, and the descriptors of closed connections that wait for their last bytes to
// leave.
#include "transport/socket/reactor.h"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <new>

#include "base/cpus.h"
#include "base/worker_pool.h"

namespace cgx::transport::socket {
namespace {

// How long a closed connection's descriptor waits for a peer that does not read.
constexpr auto kLingerLimit = std::chrono::seconds(30);
// The last close of the process may not wait longer than this: close promises less than a second in all.
constexpr auto kFinalLinger = std::chrono::milliseconds(300);

// Constant-initialised and never destroyed, so that neither loading nor unloading the library runs code for it.
constinit std::mutex sharedMutex;
Reactor* shared = nullptr;
std::size_t users = 0;

/// True when nothing needs this descriptor any more: the peer has closed, or has acknowledged everything.
///
/// Closing a socket with unread input resets the connection, which throws away what the peer has not yet received. So
/// input is read and dropped until our own output has arrived.
bool isSettled(int fd) noexcept {
  std::array<char, 16384> dropped;
  for (int i = 0; i < 256; ++i) {
    const ssize_t n = retryEintr([&] { return ::recv(fd, dropped.data(), dropped.size(), MSG_DONTWAIT); });
    if (n == 0) return true;
    if (n > 0) continue;
    if (errno != EAGAIN) return true;
    int unsent = 0;
    return ::ioctl(fd, SIOCOUTQ, &unsent) != 0 || unsent == 0;
  }
  return false;
}

}  // namespace

class Reactor::Lingerer final : public Source {
 public:
  Lingerer(Loop& loop, Fd fd) noexcept : loop_(loop), fd_(std::move(fd)) {}
  ~Lingerer() override {
    if (fd_.valid()) discard();
  }
  Status start() { return loop_.add(*this, fd_.get()); }
  bool ready(std::uint32_t) noexcept override {
    if (check()) discard();
    return false;
  }
  void tick(Clock::time_point now) noexcept override {
    if (check() || now > end_) discard();
  }
  bool check() noexcept { return isSettled(fd_.get()); }
  bool gone() const noexcept { return gone_.load(std::memory_order_acquire); }  // pairs with the release in discard

 private:
  void discard() noexcept {
    loop_.remove(*this, fd_.get());
    ::shutdown(fd_.get(), SHUT_RDWR);  // also for the copies that children of a fork hold
    fd_.reset();
    gone_.store(true, std::memory_order_release);
  }

  Loop& loop_;
  Fd fd_;
  Clock::time_point end_ = Clock::now() + kLingerLimit;
  std::atomic<bool> gone_{false};
};

Result<Reactor::Share> Reactor::acquire(const Settings& settings) {
  const std::lock_guard lock(sharedMutex);
  if (users == 0) {
    std::unique_ptr<Reactor, void (*)(Reactor*)> reactor(new Reactor, [](Reactor* r) { delete r; });
    const std::vector<int> cpus = cpusToKeepTo(settings, affinityCpus());
    for (int i = 0; i < std::max(settings.progressThreads, 1); ++i) {
      reactor->loops_.push_back(std::make_unique<Loop>());
      CGX_TRY(reactor->loops_.back()->start(i, cpus));
    }
    shared = reactor.release();
  }
  ++users;
  return Share(shared);
}

Reactor::Share::~Share() {
  if (reactor_ == nullptr) return;
  const std::lock_guard lock(sharedMutex);
  if (--users > 0) return;
  reactor_->finishLingering();
  delete reactor_;
  shared = nullptr;
}

Reactor::~Reactor() {
  lingerers_.clear();
  for (const auto& loop : loops_) loop->stop();
}

Loop& Reactor::pick() noexcept {
  const std::lock_guard lock(mutex_);
  return *loops_[next_++ % loops_.size()];
}

void Reactor::linger(Fd fd) noexcept {
  if (isSettled(fd.get())) {
    ::shutdown(fd.get(), SHUT_RDWR);
    return;
  }
  try {
    auto lingerer = std::make_unique<Lingerer>(pick(), std::move(fd));
    if (!lingerer->start().ok()) return;
    sweep();
    const std::lock_guard lock(mutex_);
    lingerers_.push_back(std::move(lingerer));
  } catch (const std::bad_alloc&) {
    return;  // closed without lingering
  }
}

/// Frees those that are done, off the loops' threads, which must not wait for themselves.
void Reactor::sweep() noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(lingerers_, [](const auto& l) { return l->gone(); });
}

void Reactor::finishLingering() noexcept {
  const Clock::time_point end = Clock::now() + kFinalLinger;
  for (;;) {
    sweep();
    {
      const std::lock_guard lock(mutex_);
      if (lingerers_.empty()) return;
    }
    if (Clock::now() >= end) return;
    for (const auto& loop : loops_) loop->tickSoon();
    (void)::poll(nullptr, 0, 2);
  }
}

}  // namespace cgx::transport::socket
