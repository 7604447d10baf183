// What the user asked `cgx perf` for. Knows the flags; does nothing.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cgx/codec.h"
#include "cgx/settings.h"

namespace cgx::tool {

struct PerfOptions {
  int ranks = 0;  // local ranks to start; 0: not given
  int rank = -1;
  int nranks = 0;
  std::string root;
  int rootFd = -1;

  std::vector<std::string> gradients;
  std::string sizes;
  std::string dtype;  // empty: the files' type, or fp32
  int bits = 0;       // 0: not given
  std::string rounding;
  bool exact = false;
  int iters = 20;
  int warmup = 5;
  double timeoutSeconds = 60;
  std::string json;
  std::string plugin;
  bool verbose = false;
};

/// Adds the flags to `command`; they are filled in when it parses.
void addPerfFlags(CLI::App& command, PerfOptions* options);

/// nullptr for a name that is none.
const codec::DType* dtypeByName(const std::string& name);

/// What must be the same on all ranks, as text.
std::string agreementOf(const PerfOptions& options);

}  // namespace cgx::tool
