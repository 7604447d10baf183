// NCCL's search for plugin libraries, written anew from what its releases do: the names that each version gives to
// dlopen, in order. Knows versions and variables; opens nothing. Sources: src/net.cc, src/misc/tuner.cc (2.18 to 2.25),
// src/plugin/plugin_open.cc, net.cc, tuner.cc, env.cc (from 2.26).
#pragma once

#include <string>
#include <vector>

#include "cgx/nccl_version.h"
#include "cgx/settings.h"

namespace cgx::test {

enum class PluginKind { Net, Tuner, Env };

/// Names for dlopen; NCCL takes the first that opens. "" stands for the program itself (NCCL's STATIC_PLUGIN). Where
/// NCCL falls back to the net plugin's library for its tuner, the net names follow the tuner's.
std::vector<std::string> namesTried(PluginKind kind, NcclVersion nccl, const Lookup& environment);

/// The releases whose tags NVIDIA/nccl has, 2.18.1 to 2.30.7.
const std::vector<NcclVersion>& ncclReleases();

}  // namespace cgx::test
