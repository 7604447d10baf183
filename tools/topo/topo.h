// `cgx topo`: where the network interfaces, GPUs and NUMA nodes of a host are, how far apart, and where the plugin's
// threads will run. Reads /sys and /proc below any root, so a tree brought from another host will do.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cgx/settings.h"
#include "cgx/status.h"
#include "cgx/topology.h"

namespace cgx::tool::topo {

struct Options {
  std::string root;    // empty: this host
  std::string json;    // file for the same as JSON
  bool gdr = false;    // print a topology for NCCL_TOPO_FILE instead
  std::string output;  // file for that
};
void addFlags(CLI::App& command, Options* options);

struct Facts {
  std::string root;  // as in Options
  topology::Topology topology;
  std::vector<std::string> used;  // names of the interfaces that the plugin uses
  std::string noneUsed;           // why there is none; else empty
  activation::Box box;            // not known when `root` is another host
  Settings settings;              // with nearCpus
  std::vector<int> allowed;       // CPUs of the calling thread; all of another host's
  std::vector<int> kept;          // of these the ones to which the plugin's threads are kept; empty: not kept
};

/// Code::Invalid: a setting is wrong, or there is no such root.
Result<Facts> collect(const Options& options, const Lookup& lookup);

/// Why `kept` is what it is, as a part of a sentence.
std::string whyKept(const Facts& facts);

/// NCCL's word for the way between an interface and a GPU; "-" for an interface that is no PCI device.
std::string distanceText(const topology::Nic& nic, const topology::Gpu& gpu);

std::string text(const Facts& facts);
std::string json(const Facts& facts);

/// 0; 1: --gdr and no GPU; 2: a setting or path is wrong or a file cannot be written.
int run(const Options& options, const Lookup& lookup);

}  // namespace cgx::tool::topo
