// Loading and connections of the net half.
#include "support/nccl_host/net_peer.h"

#include <sys/stat.h>

#include <array>
#include <cmath>
#include <cstring>
#include <thread>

namespace cgx::host {

bool NetPeer::ok(ncclResult_t result, const char* call) {
  if (result == ncclSuccess) return true;
  rank_.report(Violation::CallFails, std::string(call) + " returned " + std::to_string(result));
  return false;
}

bool NetPeer::open(std::uint64_t commId) {
  std::vector<Finding> findings;
  const bool loaded = rank_.library().acquire(&findings);
  rank_.report(findings);
  if (!loaded) return false;
  open_ = true;
  NetAbi& net = abi();
  ncclResult_t result = rank_.call("init", CallKind::Setup, [&] { return net.init(&ctx_, commId, Library::logger()); });
  if (result != ncclSuccess) {
    rank_.report(Violation::InitFails, "net init returned " + std::to_string(result));
    return false;
  }
  int devices = 0;
  result = rank_.call("devices", CallKind::Setup, [&] { return net.devices(&devices); });
  if (result != ncclSuccess || devices <= 0) {
    rank_.report(Violation::NoDevices,
                 "devices returned " + std::to_string(result) + " and " + std::to_string(devices));
    return false;
  }
  return ok(rank_.call("getProperties", CallKind::Setup, [&] { return net.getProperties(0, &props_); }),
            "getProperties") &&
         checkProps();
}

bool NetPeer::checkProps() {
  std::string wrong;
  const auto require = [&](bool good, const std::string& what) {
    if (!good) wrong += (wrong.empty() ? "" : "; ") + what;
  };
  const DeviceProps& p = props_;
  require(!p.name.empty() && p.name.find(' ') == std::string::npos, "name '" + p.name + "'");
  struct stat info {};
  require(p.pciPath.empty() || stat(p.pciPath.c_str(), &info) == 0, "pciPath '" + p.pciPath + "' does not exist");
  require((p.ptrSupport & NCCL_PTR_HOST) != 0 && p.ptrSupport < 8, "ptrSupport " + std::to_string(p.ptrSupport));
  require(p.regIsGlobal == 0 || p.regIsGlobal == 1, "regIsGlobal " + std::to_string(p.regIsGlobal));
  require(p.forceFlush == 0 || p.forceFlush == 1, "forceFlush " + std::to_string(p.forceFlush));
  require(p.speedMbps > 0, "speed " + std::to_string(p.speedMbps));
  require(std::isfinite(p.latencyUs) && p.latencyUs >= 0, "latency");
  require(p.maxComms > 0, "maxComms " + std::to_string(p.maxComms));
  require(p.maxRecvs >= 1 && p.maxRecvs <= 8, "maxRecvs " + std::to_string(p.maxRecvs));
  require(p.netDeviceType == NCCL_NET_DEVICE_HOST, "netDeviceType " + std::to_string(p.netDeviceType));
  require(p.virtualDevices == 1, "vProps");
  require(p.maxP2pBytes > 0 && p.maxP2pBytes <= NCCL_MAX_NET_SIZE_BYTES,
          "maxP2pBytes " + std::to_string(p.maxP2pBytes));
  require(p.maxCollBytes > 0 && p.maxCollBytes <= NCCL_MAX_NET_SIZE_BYTES,
          "maxCollBytes " + std::to_string(p.maxCollBytes));
  if (wrong.empty()) return true;
  rank_.report(Violation::BadProperties, wrong);
  return false;
}

bool NetPeer::connectRing(int room) {
  std::array<std::byte, NCCL_NET_HANDLE_MAXSIZE> handle{};
  NetAbi& net = abi();
  if (!ok(rank_.call("listen", CallKind::Setup, [&] { return net.listen(ctx_, 0, handle.data(), &listenComm_); }),
          "listen"))
    return false;
  if (!listenComm_) {
    rank_.report(Violation::CallFails, "listen succeeded without a listen comm");
    return false;
  }
  std::vector<std::byte> handles(handle.size() * static_cast<std::size_t>(rank_.ranks()));
  if (!rank_.allGather(room, rank_.everyone(), handle, handles, rank_.limits().operationSeconds)) {
    if (rank_.options().mayDie.empty())
      rank_.report(Violation::HostFailed, "not all ranks came to the handle exchange");
    return false;
  }
  // The handle is copied once and the same memory is given to every call: plugins keep their progress in it.
  const std::size_t next = static_cast<std::size_t>((rank_.rank() + 1) % rank_.ranks());
  std::memcpy(handle.data(), handles.data() + next * handle.size(), handle.size());
  const bool connected = pollConnections(handle.data());
  if (rank_.call("closeListen", CallKind::Close, [&] { return net.closeListen(listenComm_); }) != ncclSuccess)
    rank_.report(Violation::CallFails, "closeListen failed");
  listenComm_ = nullptr;
  return connected;
}

bool NetPeer::pollConnections(void* handleOfNext) {
  NetAbi& net = abi();
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(Seconds(rank_.limits().operationSeconds));
  while (!sendComm_ || !recvComm_) {
    if (!sendComm_) {
      const auto r =
          rank_.call("connect", CallKind::Connect, [&] { return net.connect(ctx_, 0, handleOfNext, &sendComm_); });
      if (r != ncclSuccess) {
        rank_.report(Violation::ConnectFails, "connect returned " + std::to_string(r));
        return false;
      }
    }
    if (!recvComm_) {
      const auto r = rank_.call("accept", CallKind::Connect, [&] { return net.accept(listenComm_, &recvComm_); });
      if (r != ncclSuccess) {
        rank_.report(Violation::ConnectFails, "accept returned " + std::to_string(r));
        return false;
      }
    }
    if (Clock::now() > deadline) {
      rank_.report(Violation::ConnectNeverCompletes,
                   std::string(sendComm_ ? "accept" : "connect") + " still has no comm");
      return false;
    }
    std::this_thread::yield();
  }
  return true;
}

void NetPeer::close() {
  if (!open_) return;
  NetAbi& net = abi();
  const auto closed = [&](const char* call, auto&& f) { ok(rank_.call(call, CallKind::Close, f), call); };
  if (sendComm_) closed("closeSend", [&] { return net.closeSend(sendComm_); });
  if (recvComm_) closed("closeRecv", [&] { return net.closeRecv(recvComm_); });
  if (listenComm_) closed("closeListen", [&] { return net.closeListen(listenComm_); });
  sendComm_ = recvComm_ = listenComm_ = nullptr;
  closed("finalize", [&] { return net.finalize(ctx_); });
  ctx_ = nullptr;
  rank_.library().release();
  open_ = false;
}

std::function<void(Rank&)> netRing(NetTraffic traffic, int cycles) {
  return [traffic, cycles](Rank& rank) {
    for (int i = 0; i < cycles; ++i) {
      NetPeer peer(rank);
      if (!peer.open() || !peer.connectRing()) return;
      NetTraffic t = traffic;
      t.seed += static_cast<std::uint64_t>(i);
      const TrafficEnd end = peer.traffic(t);
      // NCCL's ranks do not meet before they close, but a test of one ring must not take the peer's leaving for an
      // error of its own.
      if (end == TrafficEnd::Done) rank.barrier(1, rank.everyone(), rank.limits().operationSeconds);
      peer.close();
    }
  };
}

}  // namespace cgx::host
