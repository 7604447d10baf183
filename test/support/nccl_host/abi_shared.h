// What the net and collnet adapters share: properties of any version, and the list of null functions.
#pragma once

#include <string>

#include "support/nccl_host/abi.h"

namespace cgx::host {

/// NCCL gives the plugin uninitialised memory; a field that the plugin forgets keeps this pattern and is noticed.
template <class Props>
Props garbage() {
  Props props;
  auto* bytes = reinterpret_cast<unsigned char*>(&props);
  for (std::size_t i = 0; i < sizeof props; ++i) bytes[i] = 0xA5;
  return props;
}

template <class Props>
void copyProps(const Props& in, int dev, DeviceProps* out) {
  out->name = in.name ? in.name : "";
  out->pciPath = in.pciPath ? in.pciPath : "";
  out->guid = in.guid;
  out->ptrSupport = in.ptrSupport;
  out->speedMbps = in.speed;
  out->port = in.port;
  out->latencyUs = in.latency;
  out->maxComms = in.maxComms;
  out->maxRecvs = in.maxRecvs;
  out->maxP2pBytes = std::size_t{1} << 30;  // what NCCL assumes before v9
  out->maxCollBytes = std::size_t{1} << 29;
  if constexpr (requires { in.regIsGlobal; }) out->regIsGlobal = in.regIsGlobal;
  if constexpr (requires { in.forceFlush; }) out->forceFlush = in.forceFlush;
  if constexpr (requires { in.netDeviceType; }) out->netDeviceType = in.netDeviceType;
  if constexpr (requires { in.vProps; })
    out->virtualDevices = in.vProps.ndevs == 1 && in.vProps.devs[0] == dev ? 1 : in.vProps.ndevs;
  if constexpr (requires { in.maxP2pBytes; }) {
    out->maxP2pBytes = in.maxP2pBytes;
    out->maxCollBytes = in.maxCollBytes;
  }
}

inline void noteIfNull(std::string* missing, const char* what, bool isNull) {
  if (!isNull) return;
  if (!missing->empty()) *missing += ", ";
  *missing += what;
}

}  // namespace cgx::host
