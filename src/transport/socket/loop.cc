// One progress thread: epoll, kicks from other threads, ticks. The lock is never held while a source runs.
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <string>
#include <system_error>

#include "base/cpus.h"
#include "base/signals.h"
#include "transport/socket/reactor.h"
#include "transport/socket/socket_stream.h"

namespace cgx::transport::socket {
namespace {

// Heartbeats, deadlines and lingering descriptors need no more precision than this, and an idle process wakes rarely.
constexpr auto kTick = std::chrono::milliseconds(250);
constexpr std::uint64_t kWakeKey = ~std::uint64_t{0};

std::uint64_t keyOf(std::uint32_t slot, std::uint32_t generation) { return std::uint64_t{generation} << 32 | slot; }

}  // namespace

Loop::~Loop() { stop(); }

Status Loop::start(int index, const std::vector<int>& cpus) {
  epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.valid()) return descriptorError("create an epoll instance", errno);
  wake_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.valid()) return descriptorError("create an eventfd", errno);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeKey;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event) != 0)
    return Status::system("watch an eventfd", errno);
  // The new thread inherits the mask.
  const sigset_t blocked = signalsOfTheHost();
  sigset_t before;
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  int failed = 0;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    failed = error.code().value();
  } catch (const std::bad_alloc&) {
    failed = ENOMEM;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (failed != 0) return Status::system("start a progress thread", failed);
  (void)keepTo(thread_.native_handle(), cpus);  // refused: the process may run elsewhere now, and so does the thread
  pthread_setname_np(thread_.native_handle(), ("cgx-net-" + std::to_string(index)).c_str());
  return {};
}

void Loop::stop() noexcept {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  (void)::eventfd_write(wake_.get(), 1);
  thread_.join();
}

void Loop::tickSoon() noexcept {
  {
    const std::lock_guard lock(mutex_);
    tickSoon_ = true;
  }
  (void)::eventfd_write(wake_.get(), 1);
}

Status Loop::add(Source& source, int fd) {
  const std::lock_guard lock(mutex_);
  std::uint32_t slot;
  if (free_.empty()) {
    slot = static_cast<std::uint32_t>(entries_.size());
    entries_.emplace_back();
    free_.reserve(entries_.size());  // so that remove never allocates
  } else {
    slot = free_.back();
    free_.pop_back();
  }
  entries_[slot].source = &source;
  source.slot_ = slot;
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.u64 = keyOf(slot, entries_[slot].generation);
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return {};
  const int failed = errno;
  entries_[slot].source = nullptr;
  free_.push_back(slot);
  source.slot_ = Source::kNoSlot;
  return Status::system("watch a socket", failed);
}

void Loop::remove(Source& source, int fd) noexcept {
  std::unique_lock lock(mutex_);
  if (source.slot_ != Source::kNoSlot) unregister(source, fd);
  // Also when it has removed itself: its call may still be running.
  if (!isOwnThread()) left_.wait(lock, [&] { return current_ != &source; });
}

void Loop::unregister(Source& source, int fd) noexcept {
  (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  Entry& entry = entries_[source.slot_];
  entry.source = nullptr;
  ++entry.generation;
  free_.push_back(source.slot_);
  source.slot_ = Source::kNoSlot;
  if (source.kicked_) {
    Source* previous = nullptr;
    Source* at = kickedHead_;
    while (at != &source) previous = std::exchange(at, at->nextKicked_);
    (previous != nullptr ? previous->nextKicked_ : kickedHead_) = source.nextKicked_;
    if (kickedTail_ == &source) kickedTail_ = previous;
    source.kicked_ = false;
    --kickedCount_;
  }
}

void Loop::kick(Source& source) noexcept {
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    if (source.slot_ == Source::kNoSlot || source.kicked_) return;
    enqueue(source);
    wake = !isOwnThread() && !std::exchange(wakePending_, true);
  }
  if (wake) (void)::eventfd_write(wake_.get(), 1);
}

void Loop::enqueue(Source& source) noexcept {
  source.kicked_ = true;
  source.nextKicked_ = nullptr;
  (kickedTail_ != nullptr ? kickedTail_->nextKicked_ : kickedHead_) = &source;
  kickedTail_ = &source;
  ++kickedCount_;
}

template <class Call>
void Loop::visit(std::unique_lock<std::mutex>& lock, Source& source, Call call) noexcept {
  const std::uint32_t slot = source.slot_;
  const std::uint32_t generation = entries_[slot].generation;
  current_ = &source;
  lock.unlock();
  const bool again = call();
  lock.lock();
  current_ = nullptr;
  // Its own call may have removed and freed it: only the table can say whether it still is.
  const bool alive = entries_[slot].source == &source && entries_[slot].generation == generation;
  if (again && alive && !source.kicked_) enqueue(source);
  left_.notify_all();
}

void Loop::dispatch(std::uint64_t key, std::uint32_t events) noexcept {
  std::unique_lock lock(mutex_);
  const auto slot = static_cast<std::uint32_t>(key);
  const Entry& entry = entries_[slot];
  if (entry.source == nullptr || keyOf(slot, entry.generation) != key) return;
  Source& source = *entry.source;
  visit(lock, source, [&] { return source.ready(events); });
}

void Loop::runKicked() noexcept {
  std::unique_lock lock(mutex_);
  // Only as many as are here now: who asks again waits until the descriptors had their turn.
  for (std::size_t left = kickedCount_; left > 0 && kickedHead_ != nullptr; --left) {
    Source& source = *kickedHead_;
    kickedHead_ = source.nextKicked_;
    if (kickedHead_ == nullptr) kickedTail_ = nullptr;
    --kickedCount_;
    source.kicked_ = false;
    visit(lock, source, [&] { return source.resumed(); });
  }
}

void Loop::runTicks() noexcept {
  const Clock::time_point now = Clock::now();
  std::unique_lock lock(mutex_);
  for (std::size_t slot = 0; slot < entries_.size(); ++slot) {
    Source* source = entries_[slot].source;
    if (source == nullptr) continue;
    visit(lock, *source, [&] {
      source->tick(now);
      return false;
    });
  }
}

void Loop::drainWake() noexcept {
  eventfd_t ignored;
  (void)::eventfd_read(wake_.get(), &ignored);
  const std::lock_guard lock(mutex_);
  wakePending_ = false;
}

void Loop::run() noexcept {
  std::array<epoll_event, 64> events;
  Clock::time_point nextTick = Clock::now() + kTick;
  for (;;) {
    int timeoutMs = 0;
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      if (std::exchange(tickSoon_, false)) nextTick = Clock::now();
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(nextTick - Clock::now()).count();
      if (kickedHead_ == nullptr) timeoutMs = static_cast<int>(std::clamp<std::int64_t>(left, 0, kTick.count()));
    }
    const int n = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeoutMs);
    for (int i = 0; i < n; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      if (event.data.u64 == kWakeKey) {
        drainWake();
      } else {
        dispatch(event.data.u64, event.events);
      }
    }
    runKicked();
    if (Clock::now() >= nextTick) {
      runTicks();
      nextTick = Clock::now() + kTick;
    }
  }
}

}  // namespace cgx::transport::socket
