// N ranks as threads of one process over a real transport on loopback: how tests get communicators without NCCL.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "cgx/collective.h"
#include "cgx/transport.h"

namespace cgx::test {

inline Settings loopback() {
  Settings settings;
  settings.ifname = "=lo";
  settings.connectTimeout = 20;
  return settings;
}

/// Runs `body(rank)` for every rank at once and waits for all.
inline void onEveryRank(std::size_t ranks, const std::function<void(std::size_t rank)>& body) {
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < ranks; ++r) threads.emplace_back([&body, r] { body(r); });
  for (std::thread& t : threads) t.join();
}

class Communicators {
 public:
  using Alter =
      std::function<void(std::size_t rank, collective::ConnectSpec& spec, std::vector<transport::Handle>& handles)>;

  /// Every rank has its own transport and listener, as in its own process. `absent` ranks listen but never connect.
  explicit Communicators(const std::vector<Settings>& settings, const Alter& alter = {},
                         const std::vector<std::size_t>& absent = {})
      : transports_(settings.size()), listeners_(settings.size()), comms_(settings.size()), errors_(settings.size()) {
    std::vector<transport::Handle> handles;
    for (std::size_t r = 0; r < settings.size(); ++r) {
      transports_[r] = transport::createSocket(settings[r]).value();
      listeners_[r] = transports_[r]->listen(0, transport::Role::Collective).value();
      handles.push_back(listeners_[r]->handle());
    }
    onEveryRank(settings.size(), [&](std::size_t r) {
      if (std::find(absent.begin(), absent.end(), r) != absent.end()) return;
      std::vector<transport::Handle> own = handles;
      collective::ConnectSpec spec;
      spec.transport = transports_[r].get();
      spec.listener = listeners_[r].get();
      spec.rank = static_cast<int>(r);
      spec.settings = settings[r];
      if (alter) alter(r, spec, own);
      spec.handles = own;
      auto comm = collective::connect(spec);
      if (comm.ok()) {
        comms_[r] = std::move(comm).value();
      } else {
        errors_[r] = comm.status();
      }
    });
  }
  ~Communicators() {
    comms_.clear();
    listeners_.clear();
    transports_.clear();
  }

  collective::Communicator& operator[](std::size_t rank) { return *comms_[rank]; }
  bool connected(std::size_t rank) const { return comms_[rank] != nullptr; }
  bool allConnected() const {
    for (const auto& comm : comms_) {
      if (comm == nullptr) return false;
    }
    return true;
  }
  const Status& error(std::size_t rank) const { return errors_[rank]; }
  void close(std::size_t rank) { comms_[rank].reset(); }
  std::size_t size() const { return comms_.size(); }

 private:
  std::vector<std::unique_ptr<transport::Transport>> transports_;
  std::vector<std::unique_ptr<transport::Listener>> listeners_;
  std::vector<std::unique_ptr<collective::Communicator>> comms_;
  std::vector<Status> errors_;
};

/// Posts until accepted, as NCCL does with a NULL request.
inline Status postAllReduce(collective::Communicator& comm, const void* send, void* recv, std::size_t count,
                            codec::DType dtype, collective::Request** request) {
  for (;;) {
    CGX_TRY(comm.allReduce(send, recv, count, dtype, request));
    if (*request != nullptr) return {};
    std::this_thread::yield();
  }
}

/// Polls to the end; Code::Timeout after `seconds`, so that a test never hangs.
inline Status finish(collective::Communicator& comm, collective::Request* request, std::size_t* bytes,
                     double seconds = 30) {
  const auto deadline = transport::Clock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    const Status s = comm.test(request, bytes);
    if (!s.isPending()) return s;
    if (transport::Clock::now() > deadline) return {Code::Timeout, "not finished in time"};
    std::this_thread::yield();
  }
}

inline Status allReduce(collective::Communicator& comm, const void* send, void* recv, std::size_t count,
                        codec::DType dtype) {
  collective::Request* request = nullptr;
  CGX_TRY(postAllReduce(comm, send, recv, count, dtype, &request));
  std::size_t bytes = 0;
  return finish(comm, request, &bytes);
}

}  // namespace cgx::test
