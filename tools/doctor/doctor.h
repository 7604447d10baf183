// `cgx doctor`: what keeps NCCL from using the plugin, on this host or on all hosts of a job.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "doctor/checks.h"

namespace cgx::tool::doctor {

struct Options {
  std::string json;  // a file to write, or empty
  int comms = 1;
  int nodes = 0;  // 0: as many as take part, or not known
  bool alone = false;
  int rank = -1;
  int nranks = 0;
  std::string root;
  double timeoutSeconds = 60;
  double reachSeconds = 5;
};
void addFlags(CLI::App& command, Options* options);

/// Exit status: 0 no problem, 1 problems, 2 it could not be run or the file not be written.
int run(const Options& options, const Lookup& lookup);

}  // namespace cgx::tool::doctor
