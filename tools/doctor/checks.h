// `cgx doctor`: what makes NCCL silently leave the plugin unused on this host. Checks are pure functions of Facts, so
// that each broken set-up is a test; collect.cc finds the facts.
#pragma once

#include <string>
#include <vector>

#include "cgx/settings.h"
#include "nccl_finder.h"

namespace cgx::tool::doctor {

/// A variable and where its value comes from: "environment", "/etc/nccl.conf"; empty: not set anywhere.
struct Variable {
  std::string value;
  std::string origin;
  bool set() const { return !origin.empty(); }
};

struct Facts {
  Variable plugin;                   // NCCL_NET_PLUGIN
  Variable collnet;                  // NCCL_COLLNET_ENABLE
  Variable refCount;                 // NCCL_NET_PLUGIN_REF_COUNT
  Variable algorithm;                // NCCL_ALGO
  Variable cudaQueues;               // CUDA_DEVICE_MAX_CONNECTIONS
  std::string opened;                // the library that NCCL would open; empty: none
  std::string openError;             // why not, in the loader's words
  bool ours = false;                 // it is this plugin, with a table for net and for collnet
  std::string initError;             // why the net half does not start; empty: it does
  std::vector<std::string> devices;  // of the started net half, as lines
  std::vector<FoundNccl> nccl;
  bool envPlugin = false;       // NCCL finds this library as its env plugin, too
  bool foreignDefault = false;  // libnccl-net.so on the loader's path is another plugin
  std::string badSettings;      // the error of load(); empty: none
  std::vector<std::string> unknownSettings;
  unsigned long openFiles = 0;  // soft limit
  bool compressing = true;      // by CGX_BITS and CGX_MODE
};

enum class Verdict : unsigned char { Ok, Note, Problem };
struct Check {
  std::string name;
  Verdict verdict = Verdict::Ok;
  std::string text;
  std::string remedy;  // of a problem
};

/// All checks in the order in which NCCL would meet what they are about.
std::vector<Check> diagnose(const Facts& facts);

/// One line a check, the remedy indented below it.
std::string text(const std::vector<Check>& checks);
std::string json(const std::vector<Check>& checks);

struct Options {
  std::string json;  // a file to write, or empty
};
/// Finds the facts and prints. Exit status: 0 no problem, 1 problems, 2 the file cannot be written.
int run(const Options& options, const Lookup& lookup);
/// For tests: the facts of this host as `lookup` tells them. `root` is put before /etc.
Facts collect(const Lookup& lookup, const std::string& root = "");

}  // namespace cgx::tool::doctor
