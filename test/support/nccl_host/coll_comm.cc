// Life of a communicator. The order of calls is NCCL's.
#include "support/nccl_host/coll_comm.h"

#include <signal.h>

#include <algorithm>
#include <cstring>

namespace cgx::host {
namespace {

constexpr std::size_t kHandle = NCCL_NET_HANDLE_MAXSIZE;

}  // namespace

CollComm::CollComm(Rank& rank, CommOptions options) : rank_(rank), options_(std::move(options)) {
  if (options_.members.empty()) options_.members = rank_.everyone();
  const auto& m = options_.members;
  index_ = static_cast<int>(std::find(m.begin(), m.end(), rank_.rank()) - m.begin());
  service_ = std::make_shared<Worker>();
  progress_ = std::make_shared<Worker>();
}

bool CollComm::ok(ncclResult_t result, const char* call) {
  if (result == ncclSuccess) return true;
  rank_.report(Violation::CallFails, std::string(call) + " returned " + std::to_string(result));
  return false;
}

bool CollComm::setUp() { return open() && connect() == Connected::Yes && registerStaging(); }

bool CollComm::open() {
  std::vector<Finding> findings;
  const bool loaded = rank_.library().acquire(&findings);
  rank_.report(findings);
  if (!loaded) return false;
  open_ = true;
  if (!rank_.library().collNet()) {
    rank_.report(Violation::MissingSymbol, "ncclCollNetPlugin_v" + std::to_string(rank_.options().abi));
    return false;
  }
  NetAbi& net = *rank_.library().net();
  CollNetAbi& coll = abi();
  auto result =
      rank_.call("net init", CallKind::Setup, [&] { return net.init(&netCtx_, options_.commId, Library::logger()); });
  if (result == ncclSuccess)
    result = rank_.call("collnet init", CallKind::Setup,
                        [&] { return coll.init(&ctx_, options_.commId, Library::logger()); });
  if (result != ncclSuccess) {
    rank_.report(Violation::InitFails, "init returned " + std::to_string(result));
    return false;
  }
  int devices = 0;
  result = rank_.call("collnet devices", CallKind::Setup, [&] { return coll.devices(&devices); });
  if (result != ncclSuccess || devices <= 0) {
    rank_.report(Violation::NoDevices,
                 "collnet devices returned " + std::to_string(result) + " and " + std::to_string(devices));
    return false;
  }
  if (!ok(rank_.call("collnet getProperties", CallKind::Setup, [&] { return coll.getProperties(0, &props_); }),
          "getProperties"))
    return false;
  if (props_.maxCollBytes == 0 || props_.maxCollBytes > NCCL_MAX_NET_SIZE_BYTES)
    rank_.report(Violation::BadProperties, "maxCollBytes " + std::to_string(props_.maxCollBytes));
  askReduceSupport();
  return true;
}

void CollComm::askReduceSupport() {
  CollNetAbi& coll = abi();
  for (int dtype = 0; dtype < ncclNumTypes; ++dtype) {
    for (int op = 0; op < 4; ++op) {
      int supported = -1;
      ok(rank_.call("reduceSupport", CallKind::Setup, [&] { return coll.reduceSupport(dtype, op, &supported); }),
         "reduceSupport");
      support_[static_cast<std::size_t>(dtype * 4 + op)] = static_cast<char>(supported);
    }
  }
  rank_.hash("reduceSupport", XXH3_128bits(support_.data(), support_.size()));
}

void CollComm::beginConnect() {
  service_->begin([this] { connectOnService(); });
}

void CollComm::connectOnService() {
  CollNetAbi& coll = abi();
  std::array<std::byte, kHandle> handle{};
  if (!ok(rank_.call("collnet listen", CallKind::Setup,
                     [&] { return coll.listen(ctx_, 0, handle.data(), &listenComm_); }),
          "listen"))
    return;
  const std::size_t n = members().size();
  std::vector<std::byte> handles(n * kHandle);
  if (!rank_.allGather(options_.room, members(), handle, handles, rank_.limits().operationSeconds)) {
    connectGone_ = true;
    return;
  }
  if (options_.connectAs == ConnectAs::Dies) raise(SIGKILL);
  if (options_.connectAs == ConnectAs::CorruptHandle) {
    for (std::size_t i = 0; i < handles.size(); ++i)
      if (i / kHandle != static_cast<std::size_t>(index_)) handles[i] = std::byte{0xEE};
  }
  std::vector<void*> pointers;
  for (std::size_t i = 0; i < n; ++i) pointers.push_back(handles.data() + i * kHandle);
  if (options_.connectAs == ConnectAs::Skips) {
    connectResult_ = ncclInternalError;
  } else {
    connectResult_ = rank_.call("collnet connect", CallKind::Blocking, [&] {
      return coll.connect(pointers.data(), static_cast<int>(n), index_, listenComm_, &comm_);
    });
    if (connectResult_ != ncclSuccess) comm_ = nullptr;
  }
  // After an error NCCL forgets the listen comm without closing it: the plugin has to let go of it itself.
  if (connectResult_ == ncclSuccess || options_.connectAs == ConnectAs::Skips)
    ok(rank_.call("collnet closeListen", CallKind::Close, [&] { return coll.closeListen(listenComm_); }),
       "closeListen");
  listenComm_ = nullptr;
}

Connected CollComm::finishConnect() {
  service_->wait();
  if (connectGone_) return Connected::Gone;
  const std::array<std::byte, 1> mine{std::byte{comm_ != nullptr}};
  std::vector<std::byte> all(members().size());
  const bool together = rank_.allGather(options_.room, members(), mine, all, rank_.limits().connectSeconds);
  std::string yes;
  std::string no;
  for (std::size_t i = 0; i < all.size(); ++i)
    (all[i] != std::byte{0} ? yes : no).append(" ").append(std::to_string(members()[i]));
  if (!together) {
    if (comm_) {
      rank_.report(Violation::ConnectNotUnanimous, "connected, although another rank is gone");
      return Connected::Mixed;
    }
    return Connected::Nowhere;
  }
  if (no.empty()) return Connected::Yes;
  if (yes.empty()) {
    if (!options_.mayFail)
      rank_.report(Violation::ConnectFails, "collnet connect returned " + std::to_string(connectResult_));
    return Connected::Nowhere;
  }
  if (index_ == 0) rank_.report(Violation::ConnectNotUnanimous, "connected on ranks" + yes + ", not on" + no);
  return Connected::Mixed;
}

bool CollComm::registerStaging() {
  if (!staging_) {
    const std::size_t bytes = 2 * static_cast<std::size_t>(options_.channels) * options_.buffBytes;
    staging_ = std::make_shared<GuardedBuffer>(&rank_.board(), rank_.rank(), bytes, true);
    if (!staging_->valid()) {
      rank_.report(Violation::HostFailed, "no memory for staging");
      return false;
    }
    if (options_.stagingFill != Fill::Zeros)
      fillInput(ncclFloat32, options_.stagingFill, 77, rank_.rank(), 0, staging_->span());
  }
  bool good = true;
  service_->run([&] {
    for (int i = 0; i < 2 * options_.channels; ++i) {
      void* mhandle = nullptr;
      good = good && ok(rank_.call("collnet regMr", CallKind::Setup,
                                   [&] { return abi().regMr(comm_, staging_->data(), staging_->size(), &mhandle); }),
                        "regMr");
      mhandles_.push_back(mhandle);
    }
  });
  return good;
}

std::unique_ptr<CollComm> CollComm::split(std::uint64_t commId) {
  CommOptions options = options_;
  options.commId = commId;
  auto child = std::make_unique<CollComm>(rank_, options);
  if (!child->open()) return nullptr;
  child->parent_ = this;
  child->comm_ = comm_;
  child->staging_ = staging_;
  child->service_ = service_;
  child->progress_ = progress_;
  if (!child->registerStaging()) return nullptr;
  childHandles_.insert(childHandles_.end(), child->mhandles_.begin(), child->mhandles_.end());
  return child;
}

void* CollComm::registerUser(std::span<std::byte> memory) {
  void* mhandle = nullptr;
  service_->run([&] {
    ok(rank_.call("collnet regMr", CallKind::Setup,
                  [&] { return abi().regMr(comm_, memory.data(), memory.size(), &mhandle); }),
       "regMr of a user buffer");
  });
  return mhandle;
}

void CollComm::deregisterUser(void* mhandle) {
  service_->run([&] {
    ok(rank_.call("collnet deregMr", CallKind::Close, [&] { return abi().deregMr(comm_, mhandle); }),
       "deregMr of a user buffer");
  });
}

void CollComm::freeStaging() {
  if (stagingFreed_ || mhandles_.empty()) return;
  stagingFreed_ = true;
  service_->run([&] {
    ok(rank_.call("first collnet deregMr", CallKind::Close, [&] { return abi().deregMr(comm_, mhandles_.front()); }),
       "deregMr");
    if (options_.end == StagingEnd::Unmap) {
      staging_->retire(Violation::TouchesStagingAfterDereg, "staging after its first deregMr");
    } else {
      stagingHash_ = XXH3_128bits(staging_->data(), staging_->size());
    }
  });
}

void CollComm::close() {
  if (!open_) return;
  open_ = false;
  if (comm_ && !parent_) {
    freeStaging();
    service_->run([&] {
      // What was in flight at an abort has time to arrive late.
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      for (std::size_t i = 1; i < mhandles_.size(); ++i)
        ok(rank_.call("collnet deregMr", CallKind::Close, [&] { return abi().deregMr(comm_, mhandles_[i]); }),
           "deregMr");
      for (void* mhandle : childHandles_)
        ok(rank_.call("collnet deregMr", CallKind::Close, [&] { return abi().deregMr(comm_, mhandle); }), "deregMr");
      ok(rank_.call("closeColl", CallKind::Close, [&] { return abi().closeColl(comm_); }), "closeColl");
    });
    if (staging_ && options_.end == StagingEnd::Watch &&
        !XXH128_isEqual(stagingHash_, XXH3_128bits(staging_->data(), staging_->size())))
      rank_.report(Violation::TouchesStagingAfterDereg, "staging was written after its first deregMr");
  }
  comm_ = nullptr;
  NetAbi& net = *rank_.library().net();
  ok(rank_.call("net finalize", CallKind::Close, [&] { return net.finalize(netCtx_); }), "net finalize");
  if (rank_.library().collNet())
    ok(rank_.call("collnet finalize", CallKind::Close, [&] { return abi().finalize(ctx_); }), "collnet finalize");
  rank_.library().release();
}

}  // namespace cgx::host
