// Connection attempts that NCCL polls.
#include "plugin/dialer.h"

#include <algorithm>

namespace cgx::plugin {

using transport::Clock;
using transport::Connection;
using transport::Handle;

// An attempt fails by itself after connectTimeout, but only while somebody polls it. Twice that long unpolled means
// that its communicator was aborted under an ABI without contexts.
Dialer::Dialer(transport::Transport& transport, const Settings& settings)
    : transport_(transport),
      patience_(
          std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(2 * settings.connectTimeout))) {}

Result<std::unique_ptr<Connection>> Dialer::dial(std::uint64_t context, int device, const Handle& handle) {
  std::unique_lock lock(mutex_);
  dropStale();
  Attempt* attempt = find(context, device, handle);
  if (attempt == nullptr) {
    auto connector = transport_.connect(device, handle, {});
    if (!connector.ok()) return std::move(connector).status();
    attempts_.push_back(
        std::make_unique<Attempt>(Attempt{context, device, handle, Clock::now(), std::move(connector).value()}));
    attempt = attempts_.back().get();
  }
  if (attempt->busy) return Status::pending();

  attempt->busy = true;
  lock.unlock();
  Status status;
  std::unique_ptr<Connection> connection;
  try {
    status = attempt->connector->progress();
    if (status.ok()) connection = attempt->connector->take();
  } catch (...) {  // no memory: the attempt must not stay busy for ever
    lock.lock();
    erase(attempt);
    throw;
  }
  lock.lock();
  attempt->busy = false;
  if (!status.isPending() || attempt->doomed) erase(attempt);
  if (!status.ok()) return status;
  return connection;
}

Dialer::Attempt* Dialer::find(std::uint64_t context, int device, const Handle& handle) {
  const auto same = [&](const std::unique_ptr<Attempt>& a) {
    return a->context == context && a->device == device && a->handle == handle && !a->doomed;
  };
  const auto it = std::find_if(attempts_.begin(), attempts_.end(), same);
  return it == attempts_.end() ? nullptr : it->get();
}

void Dialer::erase(const Attempt* attempt) {
  std::erase_if(attempts_, [&](const std::unique_ptr<Attempt>& a) { return a.get() == attempt; });
}

template <class Match>
void Dialer::drop(Match match) noexcept {
  const std::lock_guard lock(mutex_);
  for (auto& attempt : attempts_) attempt->doomed = attempt->doomed || match(*attempt);
  std::erase_if(attempts_, [](const std::unique_ptr<Attempt>& a) { return a->doomed && !a->busy; });
}

void Dialer::dropContext(std::uint64_t context) noexcept {
  drop([&](const Attempt& a) { return a.context == context; });
}

void Dialer::listenerClosed(const Handle& handle) noexcept {
  drop([&](const Attempt& a) {
    if (a.handle != handle || a.busy) return false;
    try {
      return !a.connector->progress().ok();
    } catch (...) {  // no memory to find out
      return true;
    }
  });
}

void Dialer::dropStale() {
  const auto now = Clock::now();
  std::erase_if(attempts_, [&](const auto& a) { return !a->busy && now - a->started > patience_; });
}

}  // namespace cgx::plugin
