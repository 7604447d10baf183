// Progress threads: epoll loops that exist while a listener or connection does. Knows descriptors and when they are
// ready; knows nothing of what they carry.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "cgx/status.h"
#include "cgx/transport.h"

namespace cgx::transport::socket {

class Loop;

/// Something with a descriptor on a loop. All calls come from the loop's thread, with no lock of the loop held, and
/// none after Loop::remove has returned.
class Source {
 public:
  Source() = default;
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;
  virtual ~Source() = default;

  /// The descriptor became readable or writable (edge triggered: read and write until EAGAIN). True: call resumed()
  /// soon.
  virtual bool ready(std::uint32_t events) noexcept = 0;
  /// After kick(), or after true was returned. True: again, once the others had their turn.
  virtual bool resumed() noexcept { return false; }
  /// About four times a second.
  virtual void tick(Clock::time_point) noexcept {}

 private:
  friend class Loop;
  static constexpr std::uint32_t kNoSlot = ~std::uint32_t{0};
  std::uint32_t slot_ = kNoSlot;
  bool kicked_ = false;
  Source* nextKicked_ = nullptr;
};

class Loop {
 public:
  Loop() = default;
  ~Loop();  // stops
  /// The thread stays on `cpus`; none: where it is started.
  Status start(int index, const std::vector<int>& cpus);
  void stop() noexcept;

  /// From any thread. `fd` stays open until remove.
  Status add(Source& source, int fd);
  /// After it returns the loop does not touch `source` any more; waits for a call that is running, unless called from
  /// inside it. The descriptor must still be open, unless the source was removed before.
  void remove(Source& source, int fd) noexcept;
  /// Makes the loop call resumed() soon. Cheap when a kick is already pending.
  void kick(Source& source) noexcept;
  /// Makes the next tick come at once.
  void tickSoon() noexcept;
  bool isOwnThread() const noexcept { return std::this_thread::get_id() == thread_.get_id(); }

 private:
  struct Entry {
    Source* source = nullptr;
    std::uint32_t generation = 0;
  };
  void run() noexcept;
  void dispatch(std::uint64_t key, std::uint32_t events) noexcept;
  void runKicked() noexcept;
  void runTicks() noexcept;
  template <class Call>
  void visit(std::unique_lock<std::mutex>& lock, Source& source, Call call) noexcept;
  void enqueue(Source& source) noexcept;
  void unregister(Source& source, int fd) noexcept;
  void drainWake() noexcept;

  Fd epoll_;
  Fd wake_;
  std::thread thread_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable left_;
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> free_;
  Source* current_ = nullptr;
  Source* kickedHead_ = nullptr;
  Source* kickedTail_ = nullptr;
  std::size_t kickedCount_ = 0;
  bool wakePending_ = false;
  bool tickSoon_ = false;
  bool stopping_ = false;
};

/// The progress threads of the process. The first user starts them, with its settings; the last release joins them.
class Reactor {
 public:
  /// One user's share. Move only; releases when dropped, and joins the threads if it was the last: never drop it on one
  /// of them.
  class Share {
   public:
    Share() = default;
    Share(Share&& other) noexcept : reactor_(std::exchange(other.reactor_, nullptr)) {}
    Share& operator=(Share&& other) noexcept {
      std::swap(reactor_, other.reactor_);
      return *this;
    }
    ~Share();
    Reactor* operator->() const noexcept { return reactor_; }
    explicit operator bool() const noexcept { return reactor_ != nullptr; }

   private:
    friend class Reactor;
    explicit Share(Reactor* reactor) noexcept : reactor_(reactor) {}
    Reactor* reactor_ = nullptr;
  };

  static Result<Share> acquire(const Settings& settings);
  /// A loop, in turn.
  Loop& pick() noexcept;
  /// Keeps a descriptor whose connection is closed until the peer has read what is on the way, or `kLingerLimit` has
  /// passed.
  void linger(Fd fd) noexcept;

 private:
  class Lingerer;
  Reactor() = default;
  ~Reactor();
  void sweep() noexcept;
  void finishLingering() noexcept;

  std::vector<std::unique_ptr<Loop>> loops_;
  std::mutex mutex_;  // guards what follows
  std::size_t next_ = 0;
  std::vector<std::unique_ptr<Lingerer>> lingerers_;
};

}  // namespace cgx::transport::socket
