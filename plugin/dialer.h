// Connection attempts that NCCL polls: the same call comes again until it yields a connection. Finds the attempt of a
// call by what the call says (context, device, handle bytes), never by where its arguments lie. Knows no NCCL types.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "cgx/settings.h"
#include "cgx/transport.h"

namespace cgx::plugin {

/// Thread safe. Two callers with equal arguments share attempts one after the other, so each gets its own connection.
class Dialer {
 public:
  Dialer(transport::Transport& transport, const Settings& settings);
  ~Dialer() = default;
  Dialer(const Dialer&) = delete;
  Dialer& operator=(const Dialer&) = delete;

  /// Starts or continues an attempt; Pending: call again. After an error the next call starts anew.
  Result<std::unique_ptr<transport::Connection>> dial(std::uint64_t context, int device,
                                                      const transport::Handle& handle);

  /// Abandons what a context started and never finished.
  void dropContext(std::uint64_t context) noexcept;
  /// A listener of this process is gone: abandons the attempts at it that it has not answered. One that it has answered
  /// belongs to a rank (of this process, too) that has only not asked again yet; the other side may hold it already.
  void listenerClosed(const transport::Handle& handle) noexcept;

 private:
  struct Attempt {
    std::uint64_t context;
    int device;
    transport::Handle handle;
    transport::Clock::time_point started;
    std::unique_ptr<transport::Connector> connector;
    bool busy = false;    // some thread is inside progress(), without the lock
    bool doomed = false;  // dropped while busy: that thread erases it
  };
  using Attempts = std::vector<std::unique_ptr<Attempt>>;

  template <class Match>
  void drop(Match match) noexcept;
  Attempt* find(std::uint64_t context, int device, const transport::Handle& handle);
  void erase(const Attempt* attempt);
  void dropStale();

  transport::Transport& transport_;
  transport::Clock::duration patience_;
  std::mutex mutex_;
  Attempts attempts_;  // under mutex_; a handful at a time
};

}  // namespace cgx::plugin
