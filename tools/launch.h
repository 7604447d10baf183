// `cgx run`: a program's environment made such that its NCCL uses the plugin, whatever NCCL that is; then the program
// in place of this one. What NCCL must be told is cgx/activation.h's to know.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cgx/activation.h"
#include "cgx/settings.h"
#include "nccl_finder.h"

namespace cgx::tool {

struct LaunchOptions {
  bool print = false;
  bool verbose = false;
  std::string plugin;                // empty: defaultPluginPath()
  std::vector<std::string> command;  // program and its arguments
};
void addLaunchFlags(CLI::App& command, LaunchOptions* options);

/// What the environment is decided from; pure facts, so that tests can make any.
struct LaunchFacts {
  std::vector<FoundNccl> found;  // every NCCL that the program may load; empty: none found
  Lookup lookup;
  std::string library;  // of ours, an absolute path
  Settings settings;
  std::string host;  // as activation::Facts
  std::function<activation::Box()> box;
};

struct LaunchPlan {
  std::vector<std::pair<std::string, std::string>> set;  // to set, in this order; nothing that the user has set
  std::vector<std::string> warnings;                     // why the plugin may go unused all the same, a sentence each
  std::vector<std::string> about;                        // what was found, for the curious
};

/// Good for every version in `found`, and for all versions when it is empty.
LaunchPlan planLaunch(const LaunchFacts& facts);

/// Does not return when the program starts. Otherwise the exit status: 0 with --print, 2 bad usage or setting or no
/// plugin, 126 not executable, 127 not found, as shells and env(1) have it. Writes to stdout only with --print.
int launch(const LaunchOptions& options, const Lookup& lookup);

}  // namespace cgx::tool
