// A collective communicator as NCCL's collnet calls see it: requests that know their communicator, sticky errors,
// statistics at the end. Knows no ABI version.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "cgx/collective.h"
#include "plugin/boundary.h"
#include "plugin/host.h"
#include "plugin/request_pool.h"
#include "plugin/totals.h"

namespace cgx::plugin {

/// What collective::connect() needs besides a listener and a device: the Host's settings, and whether this communicator
/// is one that they mean. CGX_MODE=off is a problem of this rank, so that all ranks hear of it and none is left
/// waiting.
collective::ConnectSpec connectSpec(Host& host, int rank, std::span<const transport::Handle> handles);

/// Operations, test and iflush come from one thread at a time; memory and close from another.
class CollComm {
 public:
  /// `bits` as this rank encodes; 32: exact.
  CollComm(Host& host, std::unique_ptr<collective::Communicator> communicator, int rank, int ranks, int bits);
  /// Stops everything without waiting for a peer; says what was done.
  ~CollComm();
  CollComm(const CollComm&) = delete;
  CollComm& operator=(const CollComm&) = delete;

  collective::Communicator& communicator() noexcept { return *communicator_; }

  /// Runs start(&inner), a post on the communicator. Ok with *out == nullptr: no room now, ask again.
  template <class Start>
  Answer post(Start start, void** out) {
    Request* request = requests_.take();
    if (request == nullptr) return {};
    collective::Request* inner = nullptr;
    Status status = start(&inner);
    if (status.ok() && inner != nullptr) {
      request->inner = inner;
      *out = requests_.token(*request);
      return {};
    }
    requests_.give(*request);
    return status.failed() ? failure(status) : Answer();
  }
  /// *done = 1 ends the request; *bytes, when there, is what it moved, cut at INT_MAX.
  static Answer test(void* request, int* done, int* bytes);

  /// Pairs the first error with its line; later ones are repeats.
  Answer failure(const Status& status);

 private:
  struct Request : PooledRequest {
    CollComm* comm = nullptr;
    collective::Request* inner = nullptr;
  };

  Live live_;
  Host& host_;
  const int rank_;
  const int ranks_;
  const std::unique_ptr<collective::Communicator> communicator_;
  const Counted counted_;
  RequestPool<Request> requests_;
  std::atomic<bool> reported_{false};
  const std::uint64_t statisticsId_;  // last: once it is there nothing may fail
};

}  // namespace cgx::plugin
