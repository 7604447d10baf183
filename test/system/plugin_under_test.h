// How the system tests run the real library: its path, quiet and short settings, and the loopback interface.
#pragma once

#include <string>

#include "support/nccl_host/coll_scenarios.h"
#include "support/nccl_host/net_peer.h"

namespace cgx::host {

inline RunOptions realPlugin(int ranks, Environment environment = {}) {
  RunOptions o;
  o.plugin = CGX_PLUGIN_PATH;
  o.ranks = ranks;
  o.environment = {{"NCCL_SOCKET_IFNAME", "lo"}, {"CGX_CONNECT_TIMEOUT", "20"}};
  o.environment.insert(o.environment.end(), environment.begin(), environment.end());
  o.limits = {.runSeconds = 100, .stuckSeconds = 10, .connectSeconds = 40, .closeSeconds = 3, .operationSeconds = 30};
  return o;
}

inline Environment exactMode() { return {{"CGX_BITS", "32"}}; }
inline Environment bits(int width, const char* rounding = "stochastic") {
  return {{"CGX_BITS", std::to_string(width)}, {"CGX_ROUNDING", rounding}};
}

}  // namespace cgx::host
