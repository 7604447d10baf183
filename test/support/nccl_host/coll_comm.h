// One rank's communicator of the collnet half, as NCCL makes and unmakes it: service thread, staging, registrations.
// Operations on it are in coll_op.h. Knows CollNetAbi and Rank.
#pragma once

#include <memory>
#include <vector>

#include "support/nccl_host/abi.h"
#include "support/nccl_host/memory.h"
#include "support/nccl_host/numbers.h"
#include "support/nccl_host/rank_runner.h"
#include "support/nccl_host/worker.h"

namespace cgx::host {

enum class ConnectAs {
  Usual,
  Skips,          // listens, gives its handle, never calls connect
  CorruptHandle,  // calls connect with all other ranks' handles overwritten
  Dies,           // SIGKILL before it calls connect
};

enum class StagingEnd {
  Unmap,  // freed right after the first deregMr: a touch by a thread kills, by name
  Watch,  // kept: a late write, by the kernel too, shows as changed bytes
};

struct CommOptions {
  int channels = 2;
  std::size_t buffBytes =
      std::size_t{1} << 20;           // a channel's; NCCL's default is 4 MiB. A slot is an eighth of it a channel
  std::size_t chunkBytes = 32 << 10;  // a channel's part of one call; at most buffBytes / 8
  Fill stagingFill = Fill::Zeros;     // what staging holds before it is registered (CUDA staging is not zero)
  std::vector<int> members = {};      // empty: all ranks
  int room = 2;                       // for its handles; two communicators at once need two rooms
  std::uint64_t commId = 100;
  ConnectAs connectAs = ConnectAs::Usual;
  StagingEnd end = StagingEnd::Unmap;
  bool mayFail = false;  // a connect that fails on all ranks is what the scenario wants
};

enum class Connected { Yes, Nowhere, Mixed, Gone };

class CollComm {
 public:
  CollComm(Rank& rank, CommOptions options);
  ~CollComm() { close(); }
  CollComm(const CollComm&) = delete;
  CollComm& operator=(const CollComm&) = delete;

  /// open() and connect() and registerStaging(); false when the rank should go home (what went wrong has been
  /// reported).
  bool setUp();

  /// On the application's thread: dlopen, net init, collnet init, devices, properties, reduceSupport for every type and
  /// operation.
  bool open();
  /// On the service thread: listen, handles swapped, the blocking connect, closeListen. begin/finish let two connect at
  /// once.
  void beginConnect();
  Connected finishConnect();
  Connected connect() {
    beginConnect();
    return finishConnect();
  }
  /// 2 * channels registrations of one region.
  bool registerStaging();

  /// A communicator made by split with shared resources: same comm, same staging, its own registrations and context. It
  /// must be closed before its parent is; its registrations live as long as the parent's.
  std::unique_ptr<CollComm> split(std::uint64_t commId);

  /// deregMr of everything, staging freed after the first, closeColl, finalize, dlclose. No operation may be stepping.
  void close();
  /// Only the first deregMr of staging, and what NCCL does then to the memory.
  void freeStaging();

  Rank& rank() { return rank_; }
  const CommOptions& options() const { return options_; }
  const std::vector<int>& members() const { return options_.members; }
  int index() const { return index_; }  // this rank's place among the members
  CollNetAbi& abi() { return *rank_.library().collNet(); }
  void* comm() const { return comm_; }
  const DeviceProps& props() const { return props_; }
  Worker& service() { return *service_; }
  Worker& progress() { return *progress_; }

  std::byte* staging() const { return staging_->data(); }
  std::size_t stagingBytes() const { return staging_->size(); }
  std::size_t slotStride() const { return static_cast<std::size_t>(options_.channels) * options_.buffBytes / 8; }
  void* sendHandle() const { return mhandles_.front(); }
  void* recvHandle() const { return mhandles_.back(); }
  bool supports(ncclDataType_t dtype, ncclRedOp_t op) const {
    return support_[static_cast<std::size_t>(dtype) * 4 + static_cast<std::size_t>(op)] != 0;
  }

  /// regMr and deregMr of a user's buffer, on the service thread.
  void* registerUser(std::span<std::byte> memory);
  void deregisterUser(void* mhandle);

  bool ok(ncclResult_t result, const char* call);

 private:
  void connectOnService();
  void askReduceSupport();

  Rank& rank_;
  CommOptions options_;
  int index_ = 0;
  CollComm* parent_ = nullptr;
  bool open_ = false;
  void* netCtx_ = nullptr;
  void* ctx_ = nullptr;
  DeviceProps props_;
  std::array<char, 48> support_{};
  void* listenComm_ = nullptr;
  void* comm_ = nullptr;
  bool connectGone_ = false;
  ncclResult_t connectResult_ = ncclSuccess;
  std::shared_ptr<Worker> service_;
  std::shared_ptr<Worker> progress_;
  std::shared_ptr<GuardedBuffer> staging_;
  std::vector<void*> mhandles_;
  std::vector<void*> childHandles_;
  bool stagingFreed_ = false;
  XXH128_hash_t stagingHash_{};
};

}  // namespace cgx::host
